-- prune_reports: forget those of the first $2 reports that ended longer ago than $1 whose pieces are gone.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- Comes behind prune_report_parts, which has emptied them. No join, as there.
-- Reads:   index reports_finished, report_parts_pkey
-- Returns: pruned bigint
with gone as (
  delete from reliq.reports where id = any (array(
    select r.id from (
      select id from reliq.reports where finished_at < reliq.now() - $1::interval
      order by finished_at, id limit $2
    ) as r
    where (select p.chunk from reliq.report_parts p where p.report_id = r.id
           order by p.report_id, p.chunk, p.part limit 1) is null))
  returning 1
)
select count(*) as pruned from gone;
