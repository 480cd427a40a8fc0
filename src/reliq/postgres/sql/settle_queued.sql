-- settle_queued: jobs go back to the queue: to be retried, asked again, or handed back untried.
--
--   $1  ids       bigint[]
--   $2  fences    bigint[]
--   $3  delays    interval[]
--   $4  ended     text[]
--   $5  errors    text[]
--   $6  statuses  integer[]
--   $7  classes   text[]
--
-- What ended `again` or `handed_back` gives its attempt back. A hand-back tells nothing about
-- the job, so it does not end a row of lost leases. The attempt is recorded in the statement.
-- A job that somebody wants to be cancelled is cancelled instead, however its attempt ended.
-- Keeps:   stale-workers-change-nothing (id and fence), terminal-is-final, cancel-is-final.
-- Reads:   index jobs_pkey
-- Returns: id bigint, cancelled boolean
with moved as (
  update reliq.jobs set
    state = case when cancel_requested_at is null then 'queued' else 'cancelled' end,
    ready = cancel_requested_at is null,
    finished_at = case when cancel_requested_at is not null then reliq.now() end,
    lease_until = null, reap_at = null,
    run_at = reliq.now() + ($3::interval[])[array_position($1::bigint[], id)],
    attempt = attempt
      - (($4::text[])[array_position($1::bigint[], id)] in ('again', 'handed_back'))::int,
    lost_leases = case when ($4::text[])[array_position($1::bigint[], id)] = 'handed_back'
                       then lost_leases else 0 end,
    last_error = coalesce(($5::text[])[array_position($1::bigint[], id)], last_error)
  where id = any ($1::bigint[])
    and ((id, fence) in (select * from unnest($1::bigint[], $2::bigint[]))) is true
    and state = 'running'
  returning id, state, fence, kind, worker, claimed_at, attempt,
            array_position($1::bigint[], id) as n
),
recorded as (
  insert into reliq.attempts
    (job_id, fence, attempt, kind, worker, started_at, ended, error, status, error_class)
  select id, fence, attempt + (($4::text[])[n] in ('again', 'handed_back'))::int, kind, worker,
         claimed_at, ($4::text[])[n], ($5::text[])[n], ($6::int[])[n], ($7::text[])[n]
  from moved
)
select id, state = 'cancelled' as cancelled from moved;
