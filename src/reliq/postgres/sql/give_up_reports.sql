-- give_up_reports: reports that were begun longer ago than $1, and have no job left to go on with, have failed.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- Dead letters of theirs were kept for as long, and nobody has made them anew. No join, as in prune_reports.
-- Reads:   index reports_finished, jobs_children
-- Returns: pruned bigint
with failed as (
  update reliq.reports set
    state = 'failed', finished_at = reliq.now(),
    reason = 'its jobs died or were cancelled, and nobody made them anew'
  where id = any (array(
    select r.id from reliq.reports r
    where r.finished_at is null and r.created_at < reliq.now() - $1::interval
      and (select j.id from reliq.jobs j where j.parent_id = r.id and j.finished_at is null
           order by j.parent_id, j.id limit 1) is null
    order by r.finished_at, r.id limit $2))
    and state = 'running'
  returning 1
)
select count(*) as pruned from failed;
