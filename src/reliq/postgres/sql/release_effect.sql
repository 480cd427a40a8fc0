-- release_effect: an effect was certainly not done: forget its reservation, if that is still ours.
--
--   $1  key    text
--   $2  id     bigint
--   $3  fence  bigint
--
-- The job's row stays locked to the end, so that nobody takes it over in between.
-- Keeps:   stale-workers-change-nothing (id and fence).
-- Reads:   index effect_keys_pkey, jobs_pkey
-- Returns: key text
with ours as materialized (
  select id from reliq.jobs where id = $2 and fence = $3 and state = 'running' for share
)
delete from reliq.effect_keys
where key = $1 and job_id = $2 and fence = $3 and done_at is null and exists (select from ours)
returning key;
