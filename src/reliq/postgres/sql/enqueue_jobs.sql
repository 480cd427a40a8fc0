-- enqueue_jobs: many jobs without keys in one statement, in their order.
--
--   $1  kinds      text[]
--   $2  payloads   jsonb[]
--   $3  run_ins    interval[]
--   $4  queues     text[]
--   $5  priorities smallint[]
--
-- Reads:   nothing
-- Returns: id bigint
insert into reliq.jobs (id, kind, payload, key, run_at, queue, priority) overriding system value
select id, kind, payload, 'job:' || id, reliq.now() + run_in, queue, priority
from (
  select nextval('reliq.jobs_id_seq') as id, w.*
  from unnest($1::text[], $2::jsonb[], $3::interval[], $4::text[], $5::smallint[])
    with ordinality as w (kind, payload, run_in, queue, priority, ord)
  order by w.ord
) as w
returning id;
