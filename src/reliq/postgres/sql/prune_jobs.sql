-- prune_jobs: delete finished jobs older than $1, dead ones older than $2, walking $4 ids.
--
--   $1  age       interval
--   $2  dead_age  interval
--   $3  after     bigint
--   $4  walk      bigint
--
-- No index names the moment a job finished (settling would have to maintain it), so the walk
-- follows the primary key from behind $3, one bounded batch a call. Attempts go with their job.
-- Reads:   index jobs_pkey
-- Returns: walked_to bigint, pruned bigint
with walk as materialized (
  select id, state, finished_at from reliq.jobs where id > $3 order by id limit $4
),
gone as (
  delete from reliq.jobs where id = any (array(
    select id from walk
    where (state in ('succeeded', 'cancelled') and finished_at < reliq.now() - $1::interval)
       or (state = 'dead' and finished_at < reliq.now() - $2::interval)))
  returning id
)
select (select max(id) from walk) as walked_to, (select count(*) from gone) as pruned;
