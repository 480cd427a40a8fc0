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
  returning id, fence, kind, worker, claimed_at, attempt, dead_reason, last_error,
            array_position($1::bigint[], id) as n
),
recorded as (
  insert into reliq.attempts
    (job_id, fence, attempt, kind, worker, started_at, ended, buried, error, status)
  select id, fence, attempt, kind, worker, claimed_at, ($4::text[])[n], true, last_error,
         ($6::int[])[n]
  from buried
),
alert as materialized (
  select first.id as dead, job.job_id as alert_id
  from (
    select distinct on (kind, ($7::text[])[n]) *,
           kind || ':' || ($7::text[])[n] || ':'
             || floor(extract(epoch from reliq.now()) / extract(epoch from $9::interval)) as key
    from buried where $8::boolean and kind <> 'alert'
    order by kind, ($7::text[])[n], id
  ) as first
  cross join lateral reliq.enqueue(
    'alert',
    jsonb_build_object('job_id', first.id, 'kind', first.kind, 'reason', first.dead_reason,
                       'attempt', first.attempt, 'error', first.last_error),
    first.key
  ) as job
  where not job.duplicate
)
select b.id, a.alert_id from buried b left join alert a on a.dead = b.id;
