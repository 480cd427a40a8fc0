-- list_jobs: the newest jobs, oldest first.
--
--   $1  limit  bigint
--
-- Reads:   index jobs_pkey
-- Returns: id bigint, kind text, state text, attempt integer, event_id bigint,
--          created_at timestamptz, run_at timestamptz, finished_at timestamptz,
--          last_error text
select * from (
  select id, kind, state, attempt, event_id, created_at, run_at, finished_at, last_error
  from reliq.jobs order by id desc limit $1
) as newest
order by id;
