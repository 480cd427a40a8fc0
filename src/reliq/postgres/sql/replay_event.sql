-- replay_event: the jobs of a stored event, read again; those that exist are not doubled.
--
--   $1  event_id    bigint
--   $2  key_ttl     interval
--   $3  kinds       text[]
--   $4  payloads    jsonb[]
--   $5  keys        text[]
--   $6  run_ins     interval[]
--   $7  queues      text[]
--   $8  priorities  smallint[]
--   $9  group_keys  text[]
--   $10 groups_running integer[]
--   $11 suffix      text
--
-- A suffix unique to this replay makes every job without a key of its own a new one; an empty
-- one makes none twice.
-- Reads:   index job_keys_pkey, events_pkey
-- Returns: kind text, job_id bigint, duplicate boolean
with noted as (
  update reliq.events set replayed_at = reliq.now() where id = $1
)
select w.kind, job.job_id, job.duplicate
from (
  select t.*, row_number() over (partition by t.kind, t.key is null order by t.ord) as place
  from unnest($3::text[], $4::jsonb[], $5::text[], $6::interval[], $7::text[], $8::smallint[],
              $9::text[], $10::int[])
    with ordinality as t (kind, payload, key, run_in, queue, priority, group_key, group_running, ord)
  order by t.group_key nulls first, t.ord
) as w
cross join lateral reliq.enqueue(
  w.kind, w.payload, coalesce(w.key, 'event:' || $1::bigint || ':' || w.kind || ':' || w.place || $11),
  w.run_in, w.queue, w.priority, $2, $1, w.group_key, w.group_running
) as job;
