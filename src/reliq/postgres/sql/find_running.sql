-- find_running: how many jobs of some queues run, or of all if $1 is null; by queue and kind.
--
--   $1  queues  text[]
--
-- Behind the reaper's mark, before which no job runs; a clock set back is treated as there.
-- Reads:   index jobs_reap
-- Returns: queue text, kind text, jobs bigint, first_id bigint
select queue, kind, count(*) as jobs, min(id) as first_id
from reliq.jobs
where reap_at >= (select case when walked_to <= reliq.now() then walked_to
                              else reliq.now() - interval '1 hour' end from reliq.reaper where one)
  and state = 'running' and ($1::text[] is null or queue = any ($1::text[]))
group by queue, kind
order by queue, kind;
