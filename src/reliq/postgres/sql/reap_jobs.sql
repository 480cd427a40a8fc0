-- reap_jobs: give the jobs of expired leases back, or bury them.
--
--   $1  walk      bigint
--   $2  overlap   interval
--   $3  alerts    boolean
--   $4  window    interval
--
-- Walks the index on the earliest moment to look, behind one mark that all workers share;
-- whether a job may be taken is decided by its own row alone. A row that was renewed is
-- looked at again when its new lease ends. The mark never passes a running row that this
-- pass saw and did not take. $1 exceeds the largest claim; $2 the longest claim statement.
-- A job is buried when its attempts are used up, or as `poison` when it lost its third lease
-- in a row while it ran alone.
-- Keeps:   takeover-in-time, live-leases-stay, attempts-bound-crashes.
-- Reads:   index jobs_reap
-- Returns: id bigint, kind text, fence bigint, worker text, dead boolean,
--          alert_id bigint
with mark as materialized (
  select walked_to from reliq.reaper where one for update skip locked
),
walk as materialized (
  select seen.* from mark m cross join lateral (
    select id, state, reap_at from reliq.jobs
    where reap_at >= case when m.walked_to > reliq.now() then '-infinity' else m.walked_to end
      and reap_at <= reliq.now()
    order by reap_at limit $1
  ) as seen
),
hit as materialized (
  select id, lease_until > reliq.now() as live,
         attempt >= attempts_max as spent, alone and lost_leases >= 2 as poison
  from reliq.jobs
  where id = any (array(select id from walk where state = 'running'))
    and state = 'running' and reap_at <= reliq.now()
  for update skip locked
),
rearmed as (
  update reliq.jobs set reap_at = lease_until
  where id = any (array(select id from hit where live))
  returning id
),
lost as (
  update reliq.jobs j set
    state = case when h.spent or h.poison then 'dead' else 'queued' end,
    ready = not (h.spent or h.poison),
    finished_at = case when h.spent or h.poison then reliq.now() end,
    dead_reason = case when h.poison then 'poison' when h.spent then 'attempts' end,
    lost_leases = j.lost_leases + 1, run_at = reliq.now(),
    last_error = 'the worker ' || coalesce(j.worker, '?') || ' fell silent and its lease ended',
    lease_until = null, reap_at = null
  from hit h
  where j.id = h.id and not h.live and j.id = any (array(select id from hit where not live))
  returning j.id, j.fence, j.kind, j.worker, j.claimed_at, j.attempt, j.last_error,
            j.dead_reason, h.spent or h.poison as dead
),
recorded as (
  insert into reliq.attempts
    (job_id, fence, attempt, kind, worker, started_at, ended, buried, error)
  select id, fence, attempt, kind, worker, claimed_at, 'lease_lost', dead, last_error from lost
),
alert as materialized (
  select first.id as dead, job.job_id as alert_id
  from (
    select distinct on (kind) *,
           kind || ':lease_lost:'
             || floor(extract(epoch from reliq.now()) / extract(epoch from $4::interval)) as key
    from lost where dead and $3::boolean and kind <> 'alert'
    order by kind, id
  ) as first
  cross join lateral reliq.enqueue(
    'alert',
    jsonb_build_object('job_id', first.id, 'kind', first.kind, 'reason', first.dead_reason,
                       'attempt', first.attempt, 'error', first.last_error),
    first.key
  ) as job
  where not job.duplicate
),
moved as (
  update reliq.reaper set walked_to = least(
    case when (select count(*) from walk) < $1 then reliq.now() - $2::interval
         else (select max(reap_at) from walk) end,
    (select min(reap_at) from walk
     where state = 'running'
       and id not in (select id from lost union all select id from rearmed)))
  where one and exists (select from mark)
)
select l.id, l.kind, l.fence, l.worker, l.dead, a.alert_id
from lost l left join alert a on a.dead = l.id;
