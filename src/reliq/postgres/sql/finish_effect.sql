-- finish_effect: an effect is done, and this came of it, if its reservation is still ours.
--
--   $1  key     text
--   $2  id      bigint
--   $3  fence   bigint
--   $4  result  jsonb
--
-- Said twice, the first word stays. The job's row stays locked to the end, so that nobody takes it
-- over in between.
-- Keeps:   stale-workers-change-nothing (id and fence).
-- Reads:   index effect_keys_pkey, jobs_pkey
-- Returns: key text
with ours as materialized (
  select id from reliq.jobs where id = $2 and fence = $3 and state = 'running' for share
)
update reliq.effect_keys set
  done_at = coalesce(done_at, reliq.now()), result = coalesce(result, $4::jsonb)
where key = $1 and job_id = $2 and fence = $3 and exists (select from ours)
returning key;
