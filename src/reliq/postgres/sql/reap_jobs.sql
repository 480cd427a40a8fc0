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
-- A clock set back puts the mark into the future: then the walk begins an hour ago, and only
-- younger claims can lie there.
-- A job is buried when its attempts are used up, or as `poison` when it lost its third lease
-- in a row while it ran alone. One that is to be cancelled is cancelled, whatever else holds of it.
-- No join, and `is true` around what another index would serve: every plan, old ones too, looks
-- each job up once by its id, so that a thousand lost leases cost a thousand times one.
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
    where reap_at >= case when m.walked_to <= reliq.now() then m.walked_to
                          else reliq.now() - interval '1 hour' end
      and reap_at <= reliq.now()
    order by reap_at limit $1
  ) as seen
),
hit as materialized (
  select id, lease_until > reliq.now() as live
  from reliq.jobs
  where id = any (array(select id from walk where state = 'running'))
    and (state = 'running' and reap_at <= reliq.now()) is true
  for update skip locked
),
rearmed as (
  update reliq.jobs set reap_at = lease_until
  where id = any (array(select id from hit where live))
  returning id
),
lost as (
  update reliq.jobs j set
    (state, ready, finished_at, dead_reason) = (
      select case when h.cancelled then 'cancelled' when h.spent or h.poison then 'dead'
                  else 'queued' end,
             not (h.cancelled or h.spent or h.poison),
             case when h.cancelled or h.spent or h.poison then reliq.now() end,
             case when h.cancelled then null when h.poison then 'poison'
                  when h.spent then 'attempts' end
      from (select attempt >= attempts_max as spent, alone and lost_leases >= 2 as poison,
                   cancel_requested_at is not null as cancelled) as h),
    lost_leases = j.lost_leases + 1, run_at = reliq.now(),
    last_error = 'the worker ' || coalesce(j.worker, '?') || ' fell silent and its lease ended',
    lease_until = null, reap_at = null
  where j.id = any (array(select id from hit where not live))
  returning j as job, j.state = 'dead' as dead
),
recorded as (
  insert into reliq.attempts
    (job_id, fence, attempt, kind, worker, started_at, ended, buried, error, fingerprint)
  select (job).id, (job).fence, (job).attempt, (job).kind, (job).worker, (job).claimed_at,
         'lease_lost', dead, (job).last_error, case when dead then 'lease_lost' end
  from lost
),
moved as (
  update reliq.reaper set walked_to = least(
    case when (select count(*) from walk) < $1 then reliq.now() - $2::interval
         else (select max(reap_at) from walk) end,
    (select min(reap_at) from walk
     where state = 'running'
       and id not in (select (job).id from lost union all select id from rearmed)))
  where one and exists (select from mark)
)
select (job).id, (job).kind, (job).fence, (job).worker, dead,
       case when dead and $3::boolean and (job).kind <> 'alert'
            then reliq.raise_alert(job, 'lease_lost', $4::interval) end as alert_id
from (select * from lost order by (job).kind, (job).id) as in_order;
