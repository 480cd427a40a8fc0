-- find_requeued: the jobs that were made of dead letters.
--
--   $1  ids  bigint[]
--
-- Asked after requeue_jobs, it sees also what somebody else committed while that waited.
-- Reads:   index jobs_requeued_from
-- Returns: id bigint, job_id bigint
select requeued_from as id, id as job_id from reliq.jobs
where requeued_from = any ($1::bigint[]);
