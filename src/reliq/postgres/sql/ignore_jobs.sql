-- ignore_jobs: note that somebody looked at dead letters and leaves them as they are.
--
--   $1  ids     bigint[]
--   $2  by      text
--   $3  reason  text
--
-- Written beside the death: the dead job itself never changes again. What was ignored already, or
-- made anew, is not written again; `job_id` is the job that was made of it.
-- `::int` keeps an old plan from walking all that was ever buried.
-- Reads:   index attempts_pkey, jobs_requeued_from
-- Returns: id bigint, fresh boolean, ignored text, job_id bigint
with dead as materialized (
  select a.job_id, a.fence, a.ignored_by || ': ' || a.ignore_reason as ignored,
         (select id from reliq.jobs where requeued_from = a.job_id) as made
  from reliq.attempts a where a.job_id = any ($1::bigint[]) and a.buried::int = 1
),
noted as (
  update reliq.attempts set ignored_at = reliq.now(), ignored_by = $2, ignore_reason = $3
  where job_id = any (array(select job_id from dead where made is null)) and buried::int = 1
    and ignored_at is null
  returning job_id
)
select job_id as id, (job_id in (select job_id from noted)) as fresh, ignored, made as job_id
from dead;
