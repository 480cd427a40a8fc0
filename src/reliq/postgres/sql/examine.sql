-- examine: what `doctor` asks the database in one go.
--
-- `open` are dead letters that wait for a person: neither made anew nor ignored.
-- `is not null` lets the index serve also where the planner reads all that were requeued.
-- `workers` counts the connections on which workers listen.
-- `due_paused` are due jobs of paused queues; of kinds that are paused no index knows.
-- `alarms` are those that `watch` has told and that are on.
-- Reads:   index jobs_ready, attempts_buried, jobs_requeued_from, events_unreadable, pauses_pkey, alarms_pkey, endpoints_pkey
-- Returns: server_version text, due bigint, oldest_due interval, workers bigint,
--          unreadable bigint, dead_last_day bigint, open_last_day bigint,
--          open_alerts bigint, seqscan text, jit boolean, oldest_snapshot interval,
--          synchronous_commit text, paused text[], due_paused bigint, disabled text[], alarms text[]
with due as (
  select count(*) as n, min(j.run_at) as oldest,
         count(*) filter (where lane.queue in (select name from reliq.pauses where scope = 'queue')) as paused
  from reliq.lanes() as lane cross join lateral (
    select run_at from reliq.jobs
    where ready and queue = lane.queue and priority = lane.priority and run_at <= reliq.now()
  ) as j
),
dead as (
  select a.kind = 'alert' or a.kind like 'alert.%' as alert, a.ended_at > reliq.now() - interval '1 day' as fresh,
         a.ignored_at is null
           and not exists (select from reliq.jobs
                           where requeued_from = a.job_id and requeued_from is not null) as open
  from reliq.attempts a where a.buried
)
select current_setting('server_version') as server_version,
       (select n from due) as due,
       (select reliq.now() - oldest from due) as oldest_due,
       (select count(*) from pg_stat_activity
        where application_name = 'reliq listen' and datname = current_database()) as workers,
       (select count(*) from reliq.events
        where parse_error is not null and replayed_at is null and ignored_at is null
          and body is not null
          and received_at > reliq.now() - interval '1 day') as unreadable,
       (select count(*) from dead where fresh) as dead_last_day,
       (select count(*) from dead where fresh and open) as open_last_day,
       (select count(*) from dead where alert and open) as open_alerts,
       current_setting('enable_seqscan') as seqscan,
       current_setting('jit') = 'on' and pg_jit_available() as jit,
       (select max(statement_timestamp() - xact_start) from pg_stat_activity
        where backend_xmin is not null and pid <> pg_backend_pid()) as oldest_snapshot,
       current_setting('synchronous_commit') as synchronous_commit,
       array(select p.scope || ' ' || p.name from reliq.pauses p order by p.scope, p.name) as paused,
       (select paused from due) as due_paused,
       array(select e.name || ' (' || e.disabled_why || ')' from reliq.endpoints e
             where e.disabled_why is not null order by e.name) as disabled,
       array(select a.text from reliq.alarms a where a.ended_at is null and a.told_at is not null
             order by a.name, a.subject) as alarms;
