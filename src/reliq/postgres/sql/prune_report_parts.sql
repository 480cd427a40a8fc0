-- prune_report_parts: delete up to $2 pieces of reports that ended longer ago than $1.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- No join: every plan, old ones too, looks up the pieces of one report after the other.
-- Reads:   index reports_finished, report_parts_pkey
-- Returns: pruned bigint
with gone as (
  delete from reliq.report_parts where ctid = any (array(
    select piece.ctid
    from reliq.reports r cross join lateral (
      select q.ctid from reliq.report_parts q where q.report_id = r.id
      order by q.report_id, q.chunk, q.part limit $2
    ) as piece
    where r.finished_at < reliq.now() - $1::interval
    order by r.finished_at, r.id limit $2))
  returning 1
)
select count(*) as pruned from gone;
