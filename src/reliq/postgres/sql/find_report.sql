-- find_report: how far a report is; it may be asked for and not yet begun.
--
--   $1  id  bigint
--
-- Until it is ready `done` and `rows` are read from the parts that are there. `dead` are chunks that
-- a person has to make anew before it can go on. `total` is null until it has begun.
-- Reads:   index reports_pkey, jobs_pkey
-- Returns: name text, state text, done integer, total integer, rows bigint, dead bigint,
--          reason text, file text, now timestamptz
select r.name, r.state, case r.state when 'ready' then r.chunks else there.chunks end as done,
       r.chunks as total, coalesce(r.rows, there.rows) as rows, children.dead, r.reason, r.file,
       reliq.now() as now
from reliq.reports r
cross join lateral (
  select count(distinct p.chunk) filter (where p.chunk > 0)::int as chunks,
         coalesce(sum(p.rows), 0)::bigint as rows
  from reliq.report_parts p where p.report_id = r.id and r.state <> 'ready'
) as there
cross join lateral reliq.count_children(case r.state when 'running' then r.id end) as children
where r.id = $1
union all
select j.payload ->> 'report', case when j.state in ('queued', 'running') then 'running' else 'failed' end,
       0, null, 0, 0, case when j.state in ('dead', 'cancelled') then format('its first job is %s: see `reliq show %s`', j.state, j.id) end,
       null, reliq.now()
from reliq.jobs j
where j.id = $1 and j.kind = 'report.request' and j.state <> 'succeeded';
