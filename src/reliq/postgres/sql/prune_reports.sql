-- prune_reports: forget up to $2 reports that ended longer ago than $1, once their pieces are gone.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- Reads:   index reports_finished, report_parts_pkey
-- Returns: pruned bigint
with gone as (
  delete from reliq.reports where id = any (array(
    select r.id from reliq.reports r
    where r.finished_at < reliq.now() - $1::interval
      and not exists (select from reliq.report_parts p where p.report_id = r.id)
    order by r.finished_at limit $2))
  returning 1
)
select count(*) as pruned from gone;
