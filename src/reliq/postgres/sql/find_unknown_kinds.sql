-- find_unknown_kinds: kinds with due jobs that are not among $1, from the head of each lane.
--
--   $1  kinds  text[]
--
-- Looks at the first thousand queued jobs of each lane only: a warning needs a name, not a count.
-- Reads:   index jobs_ready
-- Returns: kind text, jobs bigint
select head.kind, count(*) as jobs
from reliq.lanes() as lane cross join lateral (
  select j.kind from reliq.jobs j
  where j.ready and j.queue = lane.queue and j.priority = lane.priority
    and j.run_at <= reliq.now()
  order by j.run_at, j.id limit 1000
) as head
where head.kind <> all ($1::text[])
group by head.kind order by head.kind;
