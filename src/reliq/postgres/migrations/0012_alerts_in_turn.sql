-- 0012_alerts_in_turn: places for alerts are taken one after the other.
-- phase: expand

comment on column reliq.alert_places.taken_in is
  'the moment at which the newest window began that took it, in milliseconds since 1970';

-- An alert about a dead job: a job of kind `alert`, one per (kind, fingerprint, window of time)
-- for many jobs that die of one error, and as many of one window as there are places; who finds all of them taken
-- makes one more for all further errors. Null where there is one already; an alert that dies makes
-- none. It goes before other jobs, which may be what it is about.
-- Places are locked upwards, so that two callers cannot deadlock, and a place is waited for: while
-- somebody takes it, nobody knows whether it is for the same error, nor whether all are taken. That
-- is as long as one statement lasts, for its callers have no transaction around them. Workers whose
-- windows differ share the places, each window from where it began.
create or replace function reliq.raise_alert(dead reliq.jobs, fingerprint text, "window" interval)
  returns bigint language plpgsql volatile
as $$
declare
  seconds numeric := extract(epoch from "window");
  number bigint := floor(extract(epoch from reliq.now()) / seconds);
  began  bigint := floor(number * seconds * 1000);
  name   text   := dead.kind || ':' || fingerprint || ':' || number;
  about  jsonb  := jsonb_build_object(
    'job_id', dead.id, 'kind', dead.kind, 'reason', dead.dead_reason,
    'attempt', dead.attempt, 'error', dead.last_error);
  free   int;
  made   record;
begin
  if dead.kind like 'alert.%'
     or exists (select from reliq.job_keys k where k.scope = 'alert' and k.key = name) then
    return null;
  end if;
  select place into free from reliq.alert_places p
  where p.taken_in < began order by p.place limit 1 for update;
  if exists (select from reliq.job_keys k where k.scope = 'alert' and k.key = name) then
    return null;  -- whoever we waited for has told it
  end if;
  if free is null then
    name := '*:more:' || number;
    about := about || jsonb_build_object('more', (select count(*) from reliq.alert_places));
    if exists (select from reliq.job_keys k where k.scope = 'alert' and k.key = name) then
      return null;
    end if;
  end if;
  select * into made from reliq.enqueue('alert', about, name, priority => 0);
  update reliq.alert_places p set taken_in = began where p.place = free;
  return case when not made.duplicate then made.job_id end;
end
$$;
