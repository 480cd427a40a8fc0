-- report_jobs: the first $5 of the jobs from $1 to $2 that came to an end between two moments.
--
--   $1  first  bigint
--   $2  last   bigint
--   $3  since  timestamptz
--   $4  until  timestamptz
--   $5  limit  bigint
--
-- No index names the moment a job finished, so a chunk of this report is a range of numbers.
-- Reads:   index jobs_pkey
-- Returns: id bigint, kind text, state text, attempt integer, created_at timestamptz,
--          claimed_at timestamptz, finished_at timestamptz
select id, kind, state, attempt, created_at, claimed_at, finished_at from reliq.jobs
where id between $1 and $2 and finished_at >= $3 and finished_at < $4
order by id limit $5;
