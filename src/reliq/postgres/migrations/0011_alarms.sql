-- 0011_alarms: a bound on alerts about single errors, and what `watch` sees and remembers.
-- phase: expand

-- Which of the alerts about single errors a window of time has had: as many as there are rows. The
-- number of a window is that in the keys of its alerts.
create table reliq.alert_places (
  place    int    primary key,
  taken_in bigint not null default -1
) with (fillfactor = 10);
insert into reliq.alert_places select generate_series(1, 10);

-- What a person was told of the queue as a whole, and must be told when it is over.
create table reliq.alarms (
  name     text        not null,
  subject  text        not null,           -- a queue or a schedule; empty: the whole
  text     text        not null,
  since    timestamptz not null,
  told_at  timestamptz,                    -- null: seen once, and not told yet
  ended_at timestamptz,                    -- null: it is on
  end_owed boolean     not null,           -- told, and "all well again" is not
  primary key (name, subject)
);

-- An alert about a dead job: a job of kind `alert`, one per (kind, fingerprint, window of time)
-- for many jobs that die of one error, and as many of one window as there are places; who finds all of them taken
-- makes one more for all further errors. Null where there is one already; an alert that dies makes
-- none. It goes before other jobs, which may be what it is about. Places that others have locked are
-- passed, so that nobody waits here; callers go by (kind, fingerprint), so that two of them cannot deadlock.
create or replace function reliq.raise_alert(dead reliq.jobs, fingerprint text, "window" interval)
  returns bigint language plpgsql volatile
as $$
declare
  number bigint := floor(extract(epoch from reliq.now()) / extract(epoch from "window"));
  name   text   := dead.kind || ':' || fingerprint || ':' || number;
  about  jsonb  := jsonb_build_object(
    'job_id', dead.id, 'kind', dead.kind, 'reason', dead.dead_reason,
    'attempt', dead.attempt, 'error', dead.last_error);
  free   reliq.alert_places;
  made   record;
begin
  if dead.kind like 'alert.%'
     or exists (select from reliq.job_keys k where k.scope = 'alert' and k.key = name) then
    return null;
  end if;
  select * into free from reliq.alert_places p
  where p.taken_in <> number order by p.place limit 1 for update skip locked;
  if found then
    update reliq.alert_places p set taken_in = number where p.place = free.place;
  else
    name := '*:more:' || number;
    about := about || jsonb_build_object('more', (select count(*) from reliq.alert_places));
    if exists (select from reliq.job_keys k where k.scope = 'alert' and k.key = name) then
      return null;
    end if;
  end if;
  select * into made from reliq.enqueue('alert', about, name, priority => 0);
  if made.duplicate then  -- somebody was quicker, and the place is not needed
    update reliq.alert_places p set taken_in = free.taken_in where p.place = free.place;
    return null;
  end if;
  return made.job_id;
end
$$;

-- What `watch` judges, in one document; of `slots` those that were made, by kind and key. Looks at a
-- bounded number of rows, found by index. Who calls it has locked reliq.alarms, so that there is one at a time.
create function reliq.watch("window" interval, due_age interval, kinds text[], slots text[])
  returns jsonb language plpgsql volatile
as $$
declare
  seen jsonb;
begin
  with newest as materialized (
    select a.job_id, a.kind, a.fingerprint, a.error, a.ignored_at
    from reliq.attempts a
    where a.buried and a.ended_at > reliq.now() - "window"
    order by a.ended_at desc limit 5000
  ),
  died as materialized (
    select n.kind, n.fingerprint, n.error, n.kind = 'alert' or n.kind like 'alert.%' as alert
    from newest n
    where n.ignored_at is null
      and (not exists (select from reliq.jobs
                       where requeued_from = n.job_id and requeued_from is not null)) is true
  ),
  errors as (
    select kind, fingerprint, count(*) as jobs, left(max(error), 200) as error
    from died where not alert group by kind, fingerprint
    order by count(*) desc, kind, fingerprint limit 10
  ),
  late as (
    select lane.queue, count(*) as jobs, extract(epoch from reliq.now() - min(head.run_at)) as age_s
    from reliq.lanes() as lane cross join lateral (
      select j.run_at, j.kind from reliq.jobs j
      where j.ready and j.queue = lane.queue and j.priority = lane.priority
        and j.run_at <= reliq.now() - due_age
      order by j.run_at, j.id limit 1000
    ) as head
    where not exists (select from reliq.pauses p
                      where p.scope = 'queue' and p.name = lane.queue
                         or p.scope = 'kind' and p.name = head.kind)
    group by lane.queue
  ),
  lost as (
    select count(*) as leases, count(distinct worker) as workers
    from (select a.worker from reliq.attempts a
          where a.ended = 'lease_lost' and a.ended_at > reliq.now() - "window"
          order by a.ended_at desc limit 1000) as newest
  ),
  overdue as (
    select state, lease_until from reliq.jobs
    where reap_at >= (select case when r.walked_to <= reliq.now() then r.walked_to
                                  else reliq.now() - interval '1 hour' end
                      from reliq.reaper r where r.one)
      and reap_at <= reliq.now() - due_age
    order by reap_at limit 10000
  )
  select jsonb_build_object(
    'now', reliq.now(),
    'died', (select count(*) from died where not alert),
    'died_at_least', (select count(*) = 5000 from newest),
    'errors', (select coalesce(jsonb_agg(to_jsonb(e)), '[]') from errors e),
    'alerts_lost', (select count(*) from died where alert),
    'late', (select coalesce(jsonb_agg(to_jsonb(l) order by l.queue), '[]') from late l),
    'lost', (select to_jsonb(l) from lost l),
    'stuck', (select count(*) from overdue
              where state = 'running' and lease_until <= reliq.now() - due_age),
    'breakers', (select coalesce(jsonb_agg(l.queue order by l.queue), '[]')
                 from reliq.limits l where l.open_until is not null  -- and somebody is kept from work by it
                   and (exists (select from reliq.jobs j where j.ready and j.queue = l.queue)
                        or reliq.holds(l.probe_id, l.probe_fence))),
    'slots', (select coalesce(jsonb_agg(s.slot), '[]') from unnest(kinds, slots) as s (kind, slot)
              where exists (select from reliq.job_keys k where k.scope = s.kind and k.key = s.slot)),
    'alarms', (select coalesce(jsonb_agg(to_jsonb(a)), '[]') from reliq.alarms a)
  ) into seen;
  return seen;
end
$$;

-- Remember these alarms and no others.
create function reliq.keep_alarms(alarms jsonb) returns void language sql
as $$
  delete from reliq.alarms;
  insert into reliq.alarms select * from jsonb_populate_recordset(null::reliq.alarms, alarms)
$$;
