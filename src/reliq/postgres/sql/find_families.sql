-- find_families: parents behind $1 whose final job is not made, the first $2 of them.
--
--   $1  after  bigint
--   $2  limit  bigint
--
-- Sorted by two columns, as only that index is: of finished families none is walked.
-- Reads:   index parents_finished
-- Returns: parent_id bigint
select job_id as parent_id from reliq.parents
where finished_at is null and job_id > $1
order by finished_at, job_id limit $2;
