-- show_attempts: every attempt of a job, in order; the one that succeeded is read off the job.
--
--   $1  job_id  bigint
--
-- Reads:   index attempts_pkey, jobs_pkey
-- Returns: attempt integer, fence bigint, worker text, started_at timestamptz,
--          ended_at timestamptz, took interval, ended text, error_class text, error text,
--          status integer
select attempt, fence, worker, started_at, ended_at, ended_at - started_at as took, ended,
       error_class, error, status
from reliq.attempts where job_id = $1
union all
select attempt, fence, worker, claimed_at, finished_at, finished_at - claimed_at,
       case state when 'succeeded' then 'succeeded' else 'running' end, null, null, null
from reliq.jobs where id = $1 and state in ('succeeded', 'running')
order by fence;
