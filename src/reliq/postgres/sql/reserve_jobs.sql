-- reserve_jobs: ids for jobs that are about to be copied in, and the clock they count from.
--
--   $1  jobs  integer
--
-- Reads:   nothing
-- Returns: id bigint, now timestamptz
select nextval('reliq.jobs_id_seq') as id, reliq.now() as now from generate_series(1, $1);
