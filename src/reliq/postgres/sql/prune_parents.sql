-- prune_parents: forget up to $2 families that have been finished for longer than $1.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- Reads:   index parents_finished
-- Returns: pruned bigint
with gone as (
  delete from reliq.parents where job_id = any (array(
    select job_id from reliq.parents where finished_at < reliq.now() - $1::interval
    order by finished_at limit $2))
  returning 1
)
select count(*) as pruned from gone;
