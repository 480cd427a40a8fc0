-- 0007_limits: pause queues and kinds; limit what runs of a queue, how fast, and whether at all.
-- phase: expand

create table reliq.pauses (
  scope  text not null check (scope in ('queue', 'kind')),
  name   text not null,
  "by"   text,
  reason text,
  at     timestamptz not null default reliq.now(),
  primary key (scope, name)
);

-- The limits of one queue; null: none of this sort. The breaker opens after so many failures in
-- a row, and lets one job through to probe when it has been open for its time.
create table reliq.limits (
  queue       text primary key,
  max_running int check (max_running between 0 and 10000),
  rate        double precision check (rate > 0 and rate <= 1e6),   -- jobs a second
  burst       int not null default 1 check (burst > 0),
  opens_after int check (opens_after > 0),
  open_for    interval not null default '1 minute' check (open_for > '0'),
  tokens      double precision not null default 1,
  filled_at   timestamptz not null default reliq.now(),
  failures    int not null default 0,                         -- in a row
  open_until  timestamptz,                                    -- null: closed
  probe_id    bigint,
  probe_fence bigint
) with (fillfactor = 10);

-- Which job fills which place of a queue that has only so many. Whether it still does is read
-- from the job's row: nothing has to be given back, and nothing can leak.
create table reliq.limit_places (
  queue  text   not null references reliq.limits (queue) on delete cascade,
  place  int    not null,
  job_id bigint not null,
  fence  bigint not null,
  primary key (queue, place)
) with (fillfactor = 50);

-- Whether this job still runs under this fence, with a lease that has not ended.
create function reliq.holds(job_id bigint, fence bigint) returns boolean
  language sql stable
as $$
  select exists (
    select from reliq.jobs j
    where j.id = holds.job_id
      and (j.fence = holds.fence and j.state = 'running' and j.lease_until > reliq.now()) is true
  )
$$;

-- How many more jobs a queue may start now, at most `wanted`; its free places; its tokens.
create function reliq.room(
  "limit" reliq.limits, wanted bigint,
  out room bigint, out free int[], out tokens double precision
) language plpgsql volatile
as $$
declare
  held int[];
begin
  room := wanted;
  if "limit".rate is not null then
    tokens := least("limit".burst, "limit".tokens + "limit".rate
      * greatest(0, extract(epoch from reliq.now() - "limit".filled_at)));
    room := least(room, floor(tokens));
  end if;
  if "limit".open_until is not null then
    room := case when "limit".open_until > reliq.now()
                   or reliq.holds("limit".probe_id, "limit".probe_fence)
                 then 0 else least(room, 1) end;
  end if;
  if "limit".max_running is not null and room > 0 then
    held := array(  -- some above the limit, where it was higher
      select p.place from reliq.limit_places p
      where p.queue = "limit".queue and reliq.holds(p.job_id, p.fence));
    room := greatest(0, least(room, "limit".max_running - cardinality(held)));
    free := array(
      select generate_series(1, "limit".max_running) except select unnest(held)
      order by 1 limit room);
  end if;
end
$$;

-- Lease jobs of one limited queue. The limit's row is locked only when there seem to be a due job
-- and room for it, and the room is looked at again after that, in a snapshot of its own. Who does not
-- get the lock soon has no room: other queues are claimed after this one.
create function reliq.claim_limited(
  queue text, places bigint, lease interval, worker text,
  priorities smallint[], after_run_at timestamptz[], after_id bigint[],
  kinds text[], attempts_max int[]
) returns setof reliq.jobs language plpgsql set lock_timeout = '100ms'
as $$
declare
  "limit" reliq.limits;
  now_free record;
begin
  select * into "limit" from reliq.limits l where l.queue = claim_limited.queue;
  if (reliq.room("limit", places)).room > 0 is not true
     or not exists (
       select from reliq.jobs d
       where d.ready and d.queue = claim_limited.queue and d.priority = any (priorities)
         and d.run_at <= reliq.now() and d.kind = any (kinds)) then
    return;
  end if;
  begin
    select * into strict "limit" from reliq.limits l where l.queue = claim_limited.queue for update;
  exception when lock_not_available or no_data_found then  -- or lifted, and perhaps set anew
    return;
  end;
  now_free := reliq.room("limit", places);
  if now_free.room > 0 is not true  -- or paused, and perhaps drained, while this waited
     or exists (select from reliq.pauses p where p.scope = 'queue' and p.name = claim_limited.queue) then
    return;
  end if;
  return query
  with taken as (
    update reliq.jobs j set
      state = 'running', ready = false, alone = false,
      fence = j.fence + 1, attempt = j.attempt + 1,
      attempts_max = coalesce(
        (claim_limited.attempts_max)[array_position(kinds, j.kind)], j.attempts_max),
      claimed_at = reliq.now(), worker = claim_limited.worker,
      lease_until = reliq.now() + lease, reap_at = reliq.now() + lease
    where j.id = any (array(
      select due.id
      from unnest(priorities, after_run_at, after_id) as lane (priority, run_at, id)
      cross join lateral (
        select d.id from reliq.jobs d
        where d.ready and d.queue = claim_limited.queue and d.priority = lane.priority
          and d.run_at <= reliq.now() and (d.run_at, d.id) > (lane.run_at, lane.id)
          and d.kind = any (kinds)
        order by d.run_at, d.id
        limit now_free.room
        for update skip locked
      ) as due
      limit now_free.room
    ))
    returning j.*
  ),
  placed as (
    insert into reliq.limit_places as p (queue, place, job_id, fence)
    select claim_limited.queue, (now_free.free)[row_number() over ()], t.id, t.fence
    from taken t where now_free.free is not null
    on conflict on constraint limit_places_pkey
      do update set job_id = excluded.job_id, fence = excluded.fence
  ),
  counted as (
    update reliq.limits l set
      tokens = coalesce(now_free.tokens - (select count(*) from taken), l.tokens),
      filled_at = greatest(l.filled_at, reliq.now()),
      probe_id = case when l.open_until is null then null else (select t.id from taken t) end,
      probe_fence = case when l.open_until is null then null
                         else (select t.fence from taken t) end
    where l.queue = claim_limited.queue and exists (select from taken)
      and (l.rate is not null or l.open_until is not null)
  )
  select * from taken;
end
$$;

-- The limits of a queue, instead of those it had; null: none of a sort, and for `burst` what may
-- start in a second: workers look once a second. What `reliq limit` does, for any language. Who
-- runs already gets a place, above the others, and so counts.
create function reliq.limit_queue(
  queue text, max_running int default null, rate double precision default null,
  burst int default null, opens_after int default null, open_for interval default '1 minute'
) returns void language sql
as $$
  insert into reliq.limits as l
    (queue, max_running, rate, burst, opens_after, open_for, tokens)
  select limit_queue.queue, limit_queue.max_running, limit_queue.rate, size.burst,
         limit_queue.opens_after, limit_queue.open_for, size.burst
  from (select coalesce(limit_queue.burst,
                        case when rate is null then 1 when rate < 10000 then ceil(rate) else 10000 end::int)) as size (burst)
  on conflict (queue) do update set
    max_running = excluded.max_running, rate = excluded.rate, burst = excluded.burst,
    opens_after = excluded.opens_after, open_for = excluded.open_for,
    tokens = least(l.tokens, excluded.burst), failures = 0, open_until = null;
  delete from reliq.limit_places p
  where p.queue = limit_queue.queue and not reliq.holds(p.job_id, p.fence);
  with held as materialized (  -- found as find_running does
    select j.id, j.fence from reliq.jobs j
    where j.reap_at >= (select case when r.walked_to <= reliq.now() then r.walked_to
                                    else reliq.now() - interval '1 hour' end
                        from reliq.reaper r where r.one)
      and j.state = 'running' and j.queue = limit_queue.queue and reliq.now() < j.lease_until
  )
  insert into reliq.limit_places (queue, place, job_id, fence)
  select limit_queue.queue, row_number() over (order by h.id)
           + coalesce((select max(p.place) from reliq.limit_places p where p.queue = limit_queue.queue), 0),
         h.id, h.fence
  from held h
  where limit_queue.max_running is not null  -- else nobody asks
    and (h.id, h.fence) not in (select p.job_id, p.fence from reliq.limit_places p
                                where p.queue = limit_queue.queue)
$$;

-- Nothing of a `queue` or `kind` is claimed any more, within a second, until it is resumed.
create function reliq.pause(
  scope text, name text, "by" text default current_user, reason text default null
) returns void language sql
as $$
  insert into reliq.pauses (scope, name, "by", reason)
  values (pause.scope, pause.name, pause."by", pause.reason)
  on conflict (scope, name) do update set "by" = excluded."by", reason = excluded.reason
$$;

create function reliq.resume(scope text, name text) returns boolean language sql
as $$
  with gone as (
    delete from reliq.pauses p where p.scope = resume.scope and p.name = resume.name returning 1
  )
  select exists (select from gone)
$$;
