-- prune_report_parts: delete up to $2 pieces of reports that ended longer ago than $1.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- Reads:   index reports_finished, report_parts_pkey
-- Returns: pruned bigint
with gone as (
  delete from reliq.report_parts p
  using (
    select q.report_id, q.chunk, q.part
    from reliq.reports r
    join reliq.report_parts q on q.report_id = r.id
    where r.finished_at < reliq.now() - $1::interval
    order by r.finished_at limit $2
  ) as old
  where (p.report_id, p.chunk, p.part) = (old.report_id, old.chunk, old.part)
  returning 1
)
select count(*) as pruned from gone;
