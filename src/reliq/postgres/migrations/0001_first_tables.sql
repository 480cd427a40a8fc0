-- 0001_first_tables: events, jobs, their keys, attempts, the reaper's mark, enqueue.
-- phase: expand

create schema if not exists reliq;

-- The one clock. Stable and inlined, so that `run_at <= reliq.now()` is an index condition.
-- Tests replace it in their own database by one that adds an offset.
create function reliq.now() returns timestamptz
  language sql stable parallel safe
  return statement_timestamp();

create table reliq.events (
  id          bigint generated always as identity primary key,
  source      text        not null,
  dedup_key   text,
  headers     jsonb       not null,
  body        bytea,                       -- as received; null once pruned
  parse_error text,                        -- why it made no jobs, where it could not be read
  received_at timestamptz not null default reliq.now(),
  replayed_at timestamptz
);
create index events_with_body on reliq.events (id) where body is not null;
create index events_unreadable on reliq.events (id)
  where parse_error is not null and replayed_at is null;

-- What makes two deliveries one event. Apart from events, because a key outlives its event.
create table reliq.event_keys (
  source     text        not null,
  key        text        not null,
  event_id   bigint      not null,
  expires_at timestamptz not null,
  primary key (source, key)
) with (fillfactor = 90);
create index event_keys_expiry on reliq.event_keys (expires_at);

-- `state` is in no index: settling and renewing change no indexed column, so that both are
-- HOT updates and a finished job leaves no dead index entry behind.
create table reliq.jobs (
  id             bigint generated always as identity primary key,
  run_at         timestamptz not null default reliq.now(),
  created_at     timestamptz not null default reliq.now(),
  claimed_at     timestamptz,
  lease_until    timestamptz,
  reap_at        timestamptz,              -- the earliest moment to look at a running job
  finished_at    timestamptz,
  event_id       bigint references reliq.events (id),
  fence          bigint      not null default 0,
  requeued_from  bigint,                   -- the dead letter this job was made from
  attempt        int         not null default 0,
  attempts_max   int         not null default 8 check (attempts_max > 0),
  lost_leases    smallint    not null default 0,   -- in a row
  priority       smallint    not null default 5 check (priority between 0 and 9),
  ready          boolean     not null default true,
  alone          boolean     not null default false,  -- ran with nothing beside it
  state          text        not null default 'queued'
                 check (state in ('queued', 'running', 'succeeded', 'dead', 'cancelled')),
  queue          text        not null default 'default',
  kind           text        not null,
  key            text        not null,
  group_key      text,
  worker         text,
  payload        jsonb       not null default '{}',
  last_error     text,
  dead_reason    text,
  requeued_by    text,
  requeue_reason text,
  check (not ready or state = 'queued')
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 20000,
  autovacuum_vacuum_cost_delay = 0
);
create index jobs_ready on reliq.jobs (queue, priority, run_at, id) where ready;
create index jobs_reap on reliq.jobs (reap_at) where reap_at is not null;
create index jobs_event on reliq.jobs (event_id) where event_id is not null;
create unique index jobs_requeued_from on reliq.jobs (requeued_from)
  where requeued_from is not null;

-- Who made a job of this kind with this key; outlives the job.
create table reliq.job_keys (
  scope      text        not null,         -- the job's kind
  key        text        not null,
  job_id     bigint      not null,
  expires_at timestamptz not null,
  primary key (scope, key)
) with (fillfactor = 90);
create index job_keys_expiry on reliq.job_keys (expires_at);   -- `is true` keeps look-ups off it

-- Every attempt that did not succeed, append-only; the one that succeeded is on the job.
create table reliq.attempts (
  job_id     bigint      not null references reliq.jobs (id) on delete cascade,
  fence      bigint      not null,
  attempt    int         not null,
  kind       text        not null,
  worker     text,
  started_at timestamptz,
  ended_at   timestamptz not null default reliq.now(),
  ended      text        not null
             check (ended in ('failed', 'timed_out', 'again', 'handed_back', 'lease_lost')),
  buried     boolean     not null default false,
  error      text,
  status     int,
  primary key (job_id, fence)
);
create index attempts_buried on reliq.attempts (ended_at) where buried;

-- The reaper's mark: no running job that is visible has `reap_at` before it.
create table reliq.reaper (
  one        boolean     primary key default true check (one),
  walked_to  timestamptz not null default '-infinity',
  checked_at timestamptz not null default '-infinity'
) with (fillfactor = 10);
insert into reliq.reaper default values;

-- Enqueue from anywhere: SQL of any language, inside the caller's transaction or alone.
-- Always answers: the new job, or the one that holds the key, also when that one is being
-- committed at this moment.
create function reliq.enqueue(
  kind     text,
  payload  jsonb    default '{}',
  key      text     default null,
  run_in   interval default '0',
  queue    text     default 'default',
  priority int      default 5,
  key_ttl  interval default '35 days',
  event_id bigint   default null,
  out job_id    bigint,
  out duplicate boolean
)
  language plpgsql
as $$
#variable_conflict use_column
declare
  new_id bigint;
  holder bigint;
begin
  if octet_length(enqueue.kind) between 1 and 200 is not true
      or octet_length(coalesce(enqueue.queue, 'default')) not between 1 and 200 then
    raise exception 'reliq.enqueue: a job needs a kind and a queue of 1 to 200 bytes'
      using errcode = '22023';
  end if;
  if octet_length(enqueue.key) > 512 then
    raise exception 'reliq.enqueue: the key of a job has at most 512 bytes, not %',
      octet_length(enqueue.key) using errcode = '22023';
  end if;
  if enqueue.priority not between 0 and 9 then
    raise exception 'reliq.enqueue: priority is 0 (first) to 9 (last), not %', enqueue.priority
      using errcode = '22023';
  end if;
  if jsonb_typeof(coalesce(enqueue.payload, '{}')) <> 'object' then
    raise exception 'reliq.enqueue: the payload is a JSON object, not %',
      jsonb_typeof(enqueue.payload) using errcode = '22023';
  end if;
  if enqueue.run_in < '0' then
    raise exception 'reliq.enqueue: run_in is a delay from now, not %', enqueue.run_in
      using errcode = '22023';
  end if;
  new_id := nextval('reliq.jobs_id_seq');
  duplicate := false;
  if enqueue.key is not null then
    insert into reliq.job_keys (scope, key, job_id, expires_at)
    values (enqueue.kind, enqueue.key, new_id, reliq.now() + enqueue.key_ttl)
    on conflict (scope, key) do nothing;
    duplicate := not found;
  end if;
  if duplicate then
    select k.job_id into holder from reliq.job_keys k
    where k.scope = enqueue.kind and k.key = enqueue.key and (k.expires_at > reliq.now()) is true;
    if not found then   -- it has expired, or is gone since
      insert into reliq.job_keys as k (scope, key, job_id, expires_at)
      values (enqueue.kind, enqueue.key, new_id, reliq.now() + enqueue.key_ttl)
      on conflict (scope, key) do update set
        job_id = case when k.expires_at <= reliq.now() then excluded.job_id else k.job_id end,
        expires_at = case when k.expires_at <= reliq.now() then excluded.expires_at
                          else k.expires_at end
      returning k.job_id into holder;
    end if;
    duplicate := holder <> new_id;
  end if;
  job_id := case when duplicate then holder else new_id end;
  if not duplicate then
    insert into reliq.jobs (id, kind, payload, key, run_at, queue, priority, event_id)
    overriding system value
    values (new_id, enqueue.kind, coalesce(enqueue.payload, '{}'),
            coalesce(enqueue.key, 'job:' || new_id),
            reliq.now() + coalesce(enqueue.run_in, '0'),
            coalesce(enqueue.queue, 'default'), enqueue.priority, enqueue.event_id);
  end if;
end
$$;

-- An alert about a dead job: a job of kind `alert`, one per (kind, fingerprint, window of time)
-- for many jobs that die of one error. Null where there is one already; an alert that dies
-- makes none. Callers go by (kind, fingerprint), so that two of them cannot deadlock.
create function reliq.raise_alert(dead reliq.jobs, fingerprint text, "window" interval)
  returns bigint language sql volatile
as $$
  select job.job_id
  from reliq.enqueue(
    'alert',
    jsonb_build_object('job_id', dead.id, 'kind', dead.kind, 'reason', dead.dead_reason,
                       'attempt', dead.attempt, 'error', dead.last_error),
    dead.kind || ':' || fingerprint || ':'
      || floor(extract(epoch from reliq.now()) / extract(epoch from "window"))
  ) as job
  where not job.duplicate
$$;

-- The lanes that have queued jobs, a lane being one (queue, priority): skips along the index.
create function reliq.lanes() returns table (queue text, priority smallint)
  language sql stable parallel safe
as $$
  with recursive lane as (
    (select queue, priority from reliq.jobs where ready order by queue, priority limit 1)
    union all
    select next.queue, next.priority
    from lane cross join lateral (
      select j.queue, j.priority from reliq.jobs j
      where j.ready and (j.queue, j.priority) > (lane.queue, lane.priority)
      order by j.queue, j.priority limit 1
    ) as next
  )
  select queue, priority from lane
$$;
