-- settle_dead: jobs go to the dead letters, each error with its alert, in one statement.
--
--   $1  ids           bigint[]
--   $2  fences        bigint[]
--   $3  reasons       text[]
--   $4  ended         text[]
--   $5  errors        text[]
--   $6  statuses      integer[]
--   $7  fingerprints  text[]
--   $8  alerts        boolean
--   $9  window        interval
--   $10 classes       text[]
--
-- An alert is a job of kind `alert`, keyed by (kind, fingerprint, window of time): one alert
-- for many jobs that die of one error. An alert that dies makes no alert.
-- Keeps:   stale-workers-change-nothing (id and fence), dead-is-visible.
-- Reads:   index jobs_pkey
-- Returns: id bigint, alert_id bigint
with buried as (
  update reliq.jobs set
    state = 'dead', finished_at = reliq.now(), lost_leases = 0,
    dead_reason = ($3::text[])[array_position($1::bigint[], id)],
    last_error = ($5::text[])[array_position($1::bigint[], id)]
  where id = any ($1::bigint[])
    and ((id, fence) in (select * from unnest($1::bigint[], $2::bigint[]))) is true
    and state = 'running'
  returning jobs as job, array_position($1::bigint[], id) as n
),
recorded as (
  insert into reliq.attempts
    (job_id, fence, attempt, kind, worker, started_at, ended, buried, error, status, error_class,
     fingerprint)
  select (job).id, (job).fence, (job).attempt, (job).kind, (job).worker, (job).claimed_at,
         ($4::text[])[n], true, (job).last_error, ($6::int[])[n], ($10::text[])[n],
         ($7::text[])[n]
  from buried
)
select (job).id,
       case when $8::boolean and (job).kind <> 'alert'
            then reliq.raise_alert(job, ($7::text[])[n], $9::interval) end as alert_id
from (select * from buried order by (job).kind, ($7::text[])[n], (job).id) as in_order;
