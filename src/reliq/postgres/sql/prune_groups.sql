-- prune_groups: forget up to $1 groups that have no job any more; one that comes back is made anew.
--
--   $1  limit  bigint
--
-- Reads:   index job_groups_pkey, jobs_pkey, jobs_blocked
-- Returns: pruned bigint
select reliq.prune_groups($1) as pruned;
