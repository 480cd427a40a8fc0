-- 0004_triage_and_numbers: what a person decided about a dead letter, whose turn it is to prune,
-- and the queue's numbers as views.
-- phase: expand

-- Beside the death and not on the dead job, which never changes again.
alter table reliq.attempts
  add column fingerprint   text,           -- of the error, where the job died of this attempt
  add column ignored_at    timestamptz,    -- somebody looked at the dead letter, and left it dead
  add column ignored_by    text,
  add column ignore_reason text;
create index attempts_ignored on reliq.attempts (job_id) where ignored_at is not null;
create index attempts_lost on reliq.attempts (ended_at) where ended = 'lease_lost';

alter table reliq.events
  add column ignored_at    timestamptz,    -- somebody looked at what could not be read, and left it
  add column ignored_by    text,
  add column ignore_reason text;

-- Who does what only one of all workers does in a while: the next may begin when it ends.
create table reliq.turns (
  what    text        primary key,
  ends_at timestamptz not null
);

-- Every view asks for a bounded number of rows, whatever is in the tables, and says where it stopped.

create view reliq.queue_depth as
with waiting as (
  select lane.queue, due.*, later.n as later, later.tried as tried_later
  from reliq.lanes() as lane
  cross join lateral (
    select count(*) as n, min(run_at) as oldest, count(*) filter (where attempt > 0) as tried
    from (select run_at, attempt from reliq.jobs
          where ready and queue = lane.queue and priority = lane.priority and run_at <= reliq.now()
          order by run_at limit 10000) as job
  ) as due
  cross join lateral (
    select count(*) as n, count(*) filter (where attempt > 0) as tried
    from (select attempt from reliq.jobs
          where ready and queue = lane.queue and priority = lane.priority and run_at > reliq.now()
          order by run_at limit 10000) as job
  ) as later
),
held as (
  select queue, count(*) filter (where state = 'running') as n, sum(count(*)) over () as looked_at
  from (select queue, state from reliq.jobs
        where reap_at >= (select walked_to from reliq.reaper)
        order by reap_at desc limit 10000) as newest
  group by queue
),
counted as (
  select queue, n + later as queued, n as due, oldest, tried + tried_later as retrying,
         0::bigint as running, 10000 in (n, later) as at_least
  from waiting
  union all
  select queue, 0, 0, null, 0, n, looked_at = 10000 from held where n > 0
)
select queue, sum(queued)::bigint as queued, sum(due)::bigint as due,
       reliq.now() - min(oldest) as oldest_due, sum(retrying)::bigint as retrying,
       sum(running)::bigint as running, bool_or(at_least) as at_least
from counted group by queue;

comment on view reliq.queue_depth is 'What waits and what runs, a row for each queue that has any.';
comment on column reliq.queue_depth.queue is 'The queue.';
comment on column reliq.queue_depth.queued is
  'Jobs that wait, due or not; of each priority the first 10,000 that are due and the first 10,000 that are not.';
comment on column reliq.queue_depth.due is 'Those of them whose time has come.';
comment on column reliq.queue_depth.oldest_due is 'For how long the first of them is due; exact.';
comment on column reliq.queue_depth.retrying is 'Those of the queued that were tried before.';
comment on column reliq.queue_depth.running is
  'Jobs that a worker holds, among the 10,000 whose leases end last.';
comment on column reliq.queue_depth.at_least is 'True where a count stopped at its bound: there are so many, or more.';

create view reliq.throughput as
with newest as (
  select kind, state, run_at, claimed_at, finished_at from reliq.jobs
  where reap_at >= reliq.now() - interval '5 minutes' order by reap_at desc limit 10000
),
span as (
  select case when count(*) = 10000 then least(reliq.now() - min(claimed_at), interval '5 minutes')
              else interval '5 minutes' end as length
  from newest
)
select kind, span.length as span,
       count(*) filter (where state = 'succeeded') as succeeded,
       count(*) filter (where state = 'dead') as died,
       round(count(*) filter (where state = 'succeeded')
             / greatest(extract(epoch from span.length), 0.001)::numeric, 2) as per_second,
       avg(claimed_at - run_at) as waited,
       avg(finished_at - claimed_at) as ran
from newest cross join span
where finished_at >= reliq.now() - span.length
group by kind, span.length;

comment on view reliq.throughput is
  'What came to an end of late, a row for each kind; of the 10,000 newest claims at most.';
comment on column reliq.throughput.kind is 'The kind.';
comment on column reliq.throughput.span is
  'How far back this looks: five minutes, or as far as the 10,000 newest claims reach.';
comment on column reliq.throughput.succeeded is 'Jobs that succeeded in the span.';
comment on column reliq.throughput.died is 'Jobs that became dead letters in the span.';
comment on column reliq.throughput.per_second is 'Jobs that succeeded, per second of the span.';
comment on column reliq.throughput.waited is 'From due to claimed, of the last attempt, on average.';
comment on column reliq.throughput.ran is 'From claimed to its end, on average.';

create view reliq.lost_leases as
with newest as (
  select kind, worker, ended_at, buried from reliq.attempts
  where ended = 'lease_lost' and ended_at >= reliq.now() - interval '1 day'
  order by ended_at desc limit 10000
)
select kind, count(*) filter (where ended_at >= reliq.now() - interval '1 hour') as last_hour,
       count(*) as last_day, count(distinct worker) as workers,
       count(*) filter (where buried) as died, max(ended_at) as newest,
       (select count(*) = 10000 from newest) as at_least
from newest group by kind;

comment on view reliq.lost_leases is
  'Attempts that ended without a word of their worker, a row for each kind; the newest 10,000 of the last day.';
comment on column reliq.lost_leases.kind is 'The kind.';
comment on column reliq.lost_leases.last_hour is 'Leases that were lost in the last hour.';
comment on column reliq.lost_leases.last_day is 'Leases that were lost in the last day.';
comment on column reliq.lost_leases.workers is 'How many workers lost them.';
comment on column reliq.lost_leases.died is 'Jobs that died of it.';
comment on column reliq.lost_leases.newest is 'When the last one was taken back.';
comment on column reliq.lost_leases.at_least is 'True where the count stopped at 10,000.';

create view reliq.dead_letters as
with newest as (
  select a.kind, a.fingerprint, a.ended_at, a.error, a.ignored_at is not null as ignored,
         exists (select from reliq.jobs where requeued_from = a.job_id and requeued_from is not null)
           as requeued
  from (select * from reliq.attempts where buried order by ended_at desc limit 10000) as a
)
select kind, fingerprint, count(*) filter (where not ignored and not requeued) as open,
       count(*) filter (where ignored and not requeued) as ignored,
       count(*) filter (where requeued) as requeued,
       min(ended_at) as oldest, max(ended_at) as newest,
       left((array_agg(error order by ended_at desc))[1], 200) as error,
       (select count(*) = 10000 from newest) as at_least
from newest group by kind, fingerprint;

comment on view reliq.dead_letters is
  'Dead letters, a row for each kind and error; the newest 10,000.';
comment on column reliq.dead_letters.kind is 'The kind.';
comment on column reliq.dead_letters.fingerprint is
  'Names the error by what stays the same from job to job; null where the job died before this column was there.';
comment on column reliq.dead_letters.open is 'Those that wait for a person: neither made anew nor ignored.';
comment on column reliq.dead_letters.ignored is 'Those that somebody looked at and left.';
comment on column reliq.dead_letters.requeued is 'Those of which a new job was made.';
comment on column reliq.dead_letters.oldest is 'When the first of them died.';
comment on column reliq.dead_letters.newest is 'When the last of them died.';
comment on column reliq.dead_letters.error is 'The error of the last one, its first 200 characters.';
comment on column reliq.dead_letters.at_least is 'True where the count stopped at 10,000.';
