-- find_job_ids: the first and the last job there is, and the database's time.
--
-- Reads:   index jobs_pkey
-- Returns: first bigint, last bigint, now timestamptz
select (select id from reliq.jobs order by id limit 1) as first,
       (select id from reliq.jobs order by id desc limit 1) as last, reliq.now() as now;
