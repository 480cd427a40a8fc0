-- add_endpoint: a new endpoint, and limits of its queue unless somebody has set some before.
--
--   $1  name         text
--   $2  url          text
--   $3  sealed       jsonb
--   $4  queue        text
--   $5  running      integer
--   $6  opens_after  integer
--   $7  open_for     interval
--
-- Reads:   index endpoints_pkey, limits_pkey
-- Returns: name text, limited void
with added as (
  insert into reliq.endpoints (name, url, sealed) values ($1, $2, $3)
  on conflict (name) do nothing
  returning name
)
select name,
       case when not exists (select from reliq.limits where queue = $4)
            then reliq.limit_queue($4, $5, null, null, $6, $7) end as limited
from added;
