-- examine: what `doctor` asks the database in one go.
--
-- Reads:   index jobs_ready, attempts_buried
-- Returns: server_version text, now timestamptz, due bigint, oldest_due interval,
--          dead_last_day bigint, dead_alerts bigint, seqscan text,
--          oldest_snapshot interval, synchronous_commit text
with recursive lane as (
  (select queue, priority from reliq.jobs where ready order by queue, priority limit 1)
  union all
  select next.queue, next.priority
  from lane cross join lateral (
    select j.queue, j.priority from reliq.jobs j
    where j.ready and (j.queue, j.priority) > (lane.queue, lane.priority)
    order by j.queue, j.priority limit 1
  ) as next
),
due as (
  select count(*) as n, min(j.run_at) as oldest
  from lane cross join lateral (
    select run_at from reliq.jobs
    where ready and queue = lane.queue and priority = lane.priority and run_at <= reliq.now()
  ) as j
)
select current_setting('server_version') as server_version,
       clock_timestamp() as now,
       (select n from due) as due,
       (select reliq.now() - oldest from due) as oldest_due,
       (select count(*) from reliq.attempts
        where buried and ended_at > reliq.now() - interval '1 day') as dead_last_day,
       (select count(*) from reliq.attempts where buried and kind = 'alert') as dead_alerts,
       current_setting('enable_seqscan') as seqscan,
       (select max(statement_timestamp() - xact_start) from pg_stat_activity
        where backend_xmin is not null and pid <> pg_backend_pid()) as oldest_snapshot,
       current_setting('synchronous_commit') as synchronous_commit;
