-- list_endpoints: every endpoint, or one.
--
--   $1  name  text
--
-- Reads:   index endpoints_pkey
-- Returns: name text, url text, sealed jsonb, rotating boolean, rotated_at timestamptz,
--          disabled_at timestamptz, disabled_why text, failing_since timestamptz,
--          failures integer, created_at timestamptz
select name, url, sealed,
       coalesce(rotated_at > reliq.now() - interval '1 day', false) as rotating, rotated_at,
       disabled_at, disabled_why, failing_since, failures, created_at
from reliq.endpoints where $1::text is null or name = $1
order by name;
