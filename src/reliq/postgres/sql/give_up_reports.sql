-- give_up_reports: reports whose jobs came to an end longer ago than $1, and which did not, have failed.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- Dead letters of theirs were kept for as long, and nobody has made them anew: no chunk is open or
-- has ended since, nor was the final job made since. No join, as in prune_reports.
-- Reads:   index reports_finished, jobs_children, parents_pkey
-- Returns: pruned bigint
with failed as (
  update reliq.reports set
    state = 'failed', finished_at = reliq.now(),
    reason = 'its jobs died or were cancelled, and nobody made them anew'
  where id = any (array(
    select r.id from reliq.reports r
    where r.finished_at is null and r.created_at < reliq.now() - $1::interval
      and (select j.id from reliq.jobs j
           where j.parent_id = r.id
             and (j.finished_at is null or j.finished_at >= reliq.now() - $1::interval)
           order by j.parent_id, j.id limit 1) is null
      and (select p.job_id from reliq.parents p
           where p.job_id = r.id
             and (p.finished_at is null or p.finished_at >= reliq.now() - $1::interval)) is null
    order by r.finished_at, r.id limit $2))
    and state = 'running'
  returning 1
)
select count(*) as pruned from failed;
