-- insert_job: one job without a key or a group, which nothing can refuse: cheaper than the public function.
--
--   $1  kind      text
--   $2  payload   jsonb
--   $3  run_in    interval
--   $4  queue     text
--   $5  priority  smallint
--
-- Reads:   nothing
-- Returns: job_id bigint, duplicate boolean
insert into reliq.jobs (id, kind, payload, key, run_at, queue, priority)
overriding system value
select new.id, $1, $2::jsonb, 'job:' || new.id, reliq.now() + $3::interval, $4, $5
from (select nextval('reliq.jobs_id_seq') as id) as new
returning id as job_id, false as duplicate;
