-- end_report: a report whose jobs have ended is ready if all of its chunks are there.
--
--   $1  id  bigint
--
-- Nothing is counted beside the parts themselves. No row back: it has come to its end before.
-- Keeps:   rows-once.
-- Reads:   index reports_pkey
-- Returns: state text, rows bigint, chunks integer, reason text
update reliq.reports r set
  state = case when there.chunks = r.chunks then 'ready' else 'failed' end,
  rows = there.rows,
  reason = case when there.chunks < r.chunks then format(
    '%s of %s chunks are missing: their jobs died or were cancelled', r.chunks - there.chunks, r.chunks) end,
  finished_at = reliq.now()
from (
  select count(distinct p.chunk) filter (where p.chunk > 0) as chunks,
         coalesce(sum(p.rows), 0)::bigint as rows
  from reliq.report_parts p where p.report_id = $1
) as there
where r.id = $1 and r.state = 'running'
returning r.state, r.rows, r.chunks, r.reason;
