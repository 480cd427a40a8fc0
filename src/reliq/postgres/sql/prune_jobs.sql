-- prune_jobs: delete jobs that ended longer ago than they are kept, walking $2 ids from behind $1.
--
--   $1  after      bigint
--   $2  walk       bigint
--   $3  kinds      text[]
--   $4  succeeded  interval[]
--   $5  cancelled  interval[]
--   $6  dead       interval[]
--   $7  ignored    interval[]
--
-- How long is said for each kind of $3, and first of all, under no name, for every other. No index
-- names the moment a job finished (settling would have to maintain it), so the walk follows the
-- primary key, one bounded batch a call; it is over where all of a batch are younger than any
-- keep. Attempts go with their job. A job that was made of a dead letter stays as long as that
-- does, or the letter could be made anew a second time.
-- Keeps:   requeue-once, claims-never-wait (skip locked).
-- Reads:   index jobs_pkey, attempts_ignored
-- Returns: walked_to bigint, pruned bigint
with walk as materialized (
  select id, state, finished_at, created_at, requeued_from,
         coalesce(array_position($3::text[], kind), 1) as n
  from reliq.jobs where id > $1 order by id limit $2
),
old as materialized (
  select id from walk
  where finished_at < reliq.now() - case state
    when 'succeeded' then ($4::interval[])[n]
    when 'cancelled' then ($5::interval[])[n]
    when 'dead' then case when exists (
        select from reliq.attempts a
        where a.job_id = walk.id and a.ignored_at is not null
      ) then ($7::interval[])[n] else ($6::interval[])[n] end
    end
    and (requeued_from is null
         or not exists (select from reliq.jobs letter where letter.id = walk.requeued_from))
),
gone as (
  delete from reliq.jobs where id = any (array(
    select id from reliq.jobs where id = any (array(select id from old))
    for update skip locked))
  returning id
)
select (select max(id) from walk
        having count(*) = $2 and bool_or(created_at < reliq.now() - (
          select min(keep) from unnest($4::interval[] || $5::interval[] || $6::interval[]
                                       || $7::interval[]) as keep))) as walked_to,
       (select count(*) from gone) as pruned;
