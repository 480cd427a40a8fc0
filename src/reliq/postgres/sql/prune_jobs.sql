-- prune_jobs: delete finished jobs older than $1, walking $3 ids from behind $2.
--
--   $1  age    interval
--   $2  after  bigint
--   $3  walk   bigint
--
-- No index names the moment a job finished (settling would have to maintain it), so the walk
-- follows the primary key, one bounded batch a call. Attempts go with their job.
-- Reads:   index jobs_pkey
-- Returns: walked_to bigint, pruned bigint
with walk as materialized (
  select id, state, finished_at from reliq.jobs where id > $2 order by id limit $3
),
gone as (
  delete from reliq.jobs
  where id = any (array(
      select id from walk
      where state in ('succeeded', 'dead', 'cancelled') and finished_at < reliq.now() - $1::interval))
    and state in ('succeeded', 'dead', 'cancelled')
  returning id
)
select (select max(id) from walk) as walked_to, (select count(*) from gone) as pruned;
