-- prune_groups: forget up to $1 groups that have no job any more.
--
--   $1  limit  bigint
--
-- A group whose head has been pruned and behind whom nobody waits; one that comes back is made anew.
-- Reads:   index job_groups_pkey, jobs_pkey, jobs_blocked
-- Returns: pruned bigint
with gone as (
  delete from reliq.job_groups where key = any (array(
    select g.key from reliq.job_groups g
    where not exists (select from reliq.jobs j where j.id = g.head)
      and not exists (select from reliq.jobs j where j.blocked and j.group_key = g.key)
    order by g.key limit $1 for update skip locked))
  returning 1
)
select count(*) as pruned from gone;
