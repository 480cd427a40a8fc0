-- enqueue_keyed_jobs: many jobs in one statement, each once per kind and key.
--
--   $1  kinds      text[]
--   $2  payloads   jsonb[]
--   $3  keys       text[]
--   $4  run_ins    interval[]
--   $5  queues     text[]
--   $6  priorities smallint[]
--   $7  group_keys text[]
--   $8  groups_running integer[]
--   $9  key_ttl    interval
--
-- Keys are taken in their own order, so that two batches of the same keys cannot deadlock; so are
-- groups, and within one, whose lock comes before any key's, the order is the caller's.
-- Reads:   index job_keys_pkey
-- Returns: place bigint, job_id bigint, duplicate boolean
select w.place, job.job_id, job.duplicate
from (
  select * from unnest($1::text[], $2::jsonb[], $3::text[], $4::interval[], $5::text[],
                       $6::smallint[], $7::text[], $8::int[])
    with ordinality as w (kind, payload, key, run_in, queue, priority, group_key, group_running, place)
  order by w.group_key nulls first, case when w.group_key is null then w.kind end,
           case when w.group_key is null then w.key end, w.place
) as w
cross join lateral reliq.enqueue(
  w.kind, w.payload, w.key, w.run_in, w.queue, w.priority, $9, null, w.group_key, w.group_running
) as job;
