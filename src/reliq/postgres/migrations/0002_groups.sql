-- 0002_groups: jobs of one group run one at a time, or a few, in the order they were enqueued in.
-- phase: expand

-- The heads are the jobs that all others of their group wait for, `running` of them at most, until
-- they have ended: whether one has is read from its own row. The number is that of the last enqueue.
create table reliq.job_groups (
  key     text primary key,
  heads   bigint[] not null default '{}',
  running int not null default 1 check (running between 1 and 1000)
) with (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0
);

-- Queued behind the heads of its group: out of the index that claims read, so that however many
-- wait, no claim walks over them.
alter table reliq.jobs
  add column blocked boolean not null default false,
  add check (not blocked or (state = 'queued' and not ready and group_key is not null)) not valid;
create index jobs_blocked on reliq.jobs (group_key, id) where blocked;

-- Make the next jobs of each group its heads, where heads have ended; returns how many jobs.
--
-- May be repeated at will. The rows of the groups are locked first, in their order, and what
-- stands in the jobs is read after that, by a statement of its own: who enqueues holds the same
-- lock until its commit, so that either it sees that the head has ended, or is seen here.
-- `places` is how many heads the groups may have from now on; null: as many as before.
create function reliq.advance_groups(keys text[], places int default null) returns bigint
  language plpgsql
as $$
declare
  advanced bigint;
begin
  insert into reliq.job_groups as g (key, running)
  select distinct wanted.key, coalesce(places, 1) from unnest(keys) as wanted (key)
  order by wanted.key
  on conflict (key) do update set running = places where g.running <> places;   -- or only locks
  with live as materialized (
    select g.key, g.running,
           array(select j.id from reliq.jobs j   -- an old plan of a join would walk all jobs
                 where j.id = any (g.heads) and j.state in ('queued', 'running')) as heads
    from reliq.job_groups g
    where g.key = any (keys)
  ),
  next as materialized (
    select live.key, live.heads,
           array(select j.id from reliq.jobs j where j.blocked and j.group_key = live.key
                 order by j.group_key, j.id limit live.running - cardinality(live.heads)) as ids
    from live where live.running > cardinality(live.heads)
  ),
  headed as (
    update reliq.job_groups g set heads = next.heads || next.ids
    from next where g.key = next.key and next.ids <> '{}'
  )
  update reliq.jobs set
    blocked = false, ready = true, run_at = greatest(run_at, reliq.now())
  where id = any (array(select unnest(next.ids) from next));
  get diagnostics advanced = row_count;
  return advanced;
end
$$;

-- Forget up to `most` groups whose heads are gone and behind whom nobody waits; returns how many.
-- Looked at again once they are locked: a job may have been put into one meanwhile.
create function reliq.prune_groups(most bigint) returns bigint language plpgsql
as $$
declare
  idle   text[];
  pruned bigint;
begin
  idle := array(
    select g.key from reliq.job_groups g
    where (select true from reliq.jobs j where j.id = any (g.heads) limit 1) is not true
      and (select true from reliq.jobs j where j.blocked and j.group_key = g.key limit 1) is not true
    order by g.key limit most for update skip locked);
  delete from reliq.job_groups g
  where g.key = any (idle)
    and (select true from reliq.jobs j where j.id = any (g.heads) limit 1) is not true
    and (select true from reliq.jobs j where j.blocked and j.group_key = g.key limit 1) is not true;
  get diagnostics pruned = row_count;
  return pruned;
end
$$;

-- As before, and into a group: its row is locked before the key is, so that two transactions
-- that make jobs of one group never wait for each other.
drop function reliq.enqueue(text, jsonb, text, interval, text, int, interval, bigint);
create function reliq.enqueue(
  kind      text,
  payload   jsonb    default '{}',
  key       text     default null,
  run_in    interval default '0',
  queue     text     default 'default',
  priority  int      default 5,
  key_ttl   interval default '35 days',
  event_id  bigint   default null,
  group_key text     default null,
  group_running int  default 1,
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
  if octet_length(enqueue.group_key) not between 1 and 512 then
    raise exception 'reliq.enqueue: the group_key of a job has 1 to 512 bytes, not %',
      octet_length(enqueue.group_key) using errcode = '22023';
  end if;
  if enqueue.group_running between 1 and 1000 is not true
      or enqueue.group_running > 1 and enqueue.group_key is null then
    raise exception 'reliq.enqueue: group_running is how many of a group_key may run at one time, '
      '1 to 1000, not %', enqueue.group_running using errcode = '22023';
  end if;
  if enqueue.event_id is null and enqueue.kind || ':' = left(
      substring(enqueue.key from '^event:[0-9]+:(.*)$'), length(enqueue.kind) + 1) then
    raise exception 'reliq.enqueue: the key % is of the form that reliq makes up for jobs of '
      'events: begin it with a word of your own', enqueue.key using errcode = '22023';
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
  if enqueue.group_key is not null then   -- locks it, and leaves it as it is
    insert into reliq.job_groups as g (key) values (enqueue.group_key)
    on conflict (key) do update set running = g.running where false;
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
  if duplicate then
    return;
  end if;
  insert into reliq.jobs
    (id, kind, payload, key, run_at, queue, priority, event_id, group_key, ready, blocked)
  overriding system value
  values (new_id, enqueue.kind, coalesce(enqueue.payload, '{}'),
          coalesce(enqueue.key, 'job:' || new_id),
          reliq.now() + coalesce(enqueue.run_in, '0'),
          coalesce(enqueue.queue, 'default'), coalesce(enqueue.priority, 5), enqueue.event_id,
          enqueue.group_key, enqueue.group_key is null, enqueue.group_key is not null);
  if enqueue.group_key is not null then
    perform reliq.advance_groups(array[enqueue.group_key], enqueue.group_running);
  end if;
end
$$;
