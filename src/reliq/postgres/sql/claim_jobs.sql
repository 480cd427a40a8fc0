-- claim_jobs: lease up to $1 due jobs to one worker, lane by lane, in the lanes' order.
--
--   $1   places       bigint
--   $2   lease        interval
--   $3   worker       text
--   $4   queues       text[]
--   $5   priorities   smallint[]
--   $6   after_run_at timestamptz[]
--   $7   after_id     bigint[]
--   $8   kinds        text[]
--   $9   attempts_max integer[]
--
-- A lane is one (queue, priority), read behind its cursor ($6, $7): jobs of later moments,
-- other kinds' jobs behind the cursor and dead index entries are not walked again and again.
-- Keeps:   one-live-lease (skip locked), fence-rises.
-- Reads:   index jobs_ready
-- Returns: id bigint, fence bigint, kind text, key text, payload jsonb, attempt integer,
--          attempts_max integer, lost_leases smallint, event_id bigint, queue text,
--          priority smallint, run_at timestamptz, waited interval, group_key text
update reliq.jobs set
  state = 'running', ready = false, alone = false,
  fence = fence + 1, attempt = attempt + 1,
  attempts_max = coalesce(($9::int[])[array_position($8::text[], kind)], attempts_max),
  claimed_at = reliq.now(), worker = $3,
  lease_until = reliq.now() + $2::interval, reap_at = reliq.now() + $2::interval
where id = any (array(
  select due.id
  from unnest($4::text[], $5::smallint[], $6::timestamptz[], $7::bigint[])
    as lane (queue, priority, run_at, id)
  cross join lateral (
    select j.id from reliq.jobs j
    where j.ready and j.queue = lane.queue and j.priority = lane.priority
      and j.run_at <= reliq.now() and (j.run_at, j.id) > (lane.run_at, lane.id)
      and j.kind = any ($8::text[])
    order by j.run_at, j.id
    limit $1
    for update skip locked
  ) as due
  limit $1
))
returning id, fence, kind, key, payload, attempt, attempts_max, lost_leases, event_id, queue,
          priority, run_at, reliq.now() - run_at as waited, group_key;
