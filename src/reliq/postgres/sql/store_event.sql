-- store_event: an event and all its jobs, or the event that was stored before.
--
--   $1   source      text
--   $2   dedup_key   text
--   $3   headers     jsonb
--   $4   body        bytea
--   $5   parse_error text
--   $6   key_ttl     interval
--   $7   kinds       text[]
--   $8   payloads    jsonb[]
--   $9   keys        text[]
--   $10  run_ins     interval[]
--   $11  queues      text[]
--   $12  priorities  smallint[]
--   $13  group_keys  text[]
--   $14  groups_running integer[]
--
-- Always one row, also for a duplicate that races the first insert: the insert of the key
-- decides, and its conflict returns the holder. A job without a key of its own gets one made
-- of the event and of its place among the event's jobs of its kind, so that a replay does not
-- double it. Who puts jobs into several groups
-- locks them in their order. `is true` keeps an old plan from walking the index of expiries.
-- Keeps:   none-lost, one-per-key, enqueue-atomic.
-- Reads:   index event_keys_pkey
-- Returns: event_id bigint, duplicate boolean, jobs bigint
with seen as materialized (
  select event_id from reliq.event_keys
  where source = $1 and key = $2 and (expires_at > reliq.now()) is true
),
draft as materialized (
  select nextval('reliq.events_id_seq') as id where not exists (select from seen)
),
holder as (
  insert into reliq.event_keys as k (source, key, event_id, expires_at)
  select $1, $2, d.id, reliq.now() + $6::interval
  from draft d where $2::text is not null
  on conflict (source, key) do update set
    event_id = case when k.expires_at <= reliq.now() then excluded.event_id else k.event_id end,
    expires_at = case when k.expires_at <= reliq.now() then excluded.expires_at
                      else k.expires_at end
  returning event_id
),
event as (
  insert into reliq.events (id, source, dedup_key, headers, body, parse_error)
  overriding system value
  select d.id, $1, $2, $3, $4, $5 from draft d
  where $2::text is null or exists (select from holder h where h.event_id = d.id)
  returning id
),
made as materialized (
  select job.duplicate
  from event e
  cross join lateral (
    select w.*, row_number() over (partition by w.kind, w.key is null order by w.ord) as place
    from unnest($7::text[], $8::jsonb[], $9::text[], $10::interval[], $11::text[],
                $12::smallint[], $13::text[], $14::int[])
      with ordinality as w (kind, payload, key, run_in, queue, priority, group_key, group_running, ord)
    order by w.group_key nulls first, w.ord
  ) as w
  cross join lateral reliq.enqueue(
    w.kind, w.payload, coalesce(w.key, 'event:' || e.id || ':' || w.kind || ':' || w.place),
    w.run_in, w.queue, w.priority, $6, e.id, w.group_key, w.group_running
  ) as job
)
select event_id, true as duplicate, 0::bigint as jobs from seen
union all
select coalesce(h.event_id, d.id), not exists (select from event),
       (select count(*) from made where not made.duplicate)
from draft d left join holder h on true;
