-- find_endpoint: where a job's endpoint is and how to sign now, and since when the job waits.
--
--   $1  name    text
--   $2  job_id  bigint
--
-- `rotating` while the secret before the newest signs as well, which it does for a day. A job that was
-- made anew of a dead letter tells the time at which the first of them was enqueued: it knows that itself,
-- unless a version made it anew that knew no such column.
-- Reads:   index endpoints_pkey, jobs_pkey
-- Returns: name text, url text, sealed jsonb, rotating boolean, disabled_why text,
--          now timestamptz, enqueued_at timestamptz
with recursive made as (
  select first_at, created_at, requeued_from from reliq.jobs where id = $2
  union all
  select j.first_at, j.created_at, j.requeued_from
  from made join reliq.jobs j on j.id = made.requeued_from
)
select name, url, sealed,
       coalesce(rotated_at > reliq.now() - interval '1 day', false) as rotating, disabled_why,
       reliq.now() as now,
       (select min(coalesce(first_at, created_at)) from made) as enqueued_at
from reliq.endpoints where name = $1;
