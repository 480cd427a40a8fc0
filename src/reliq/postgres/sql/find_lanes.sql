-- find_lanes: the (queue, priority) pairs that have queued jobs, by skipping along the index.
--
-- Reads:   index jobs_ready
-- Returns: queue text, priority smallint
with recursive lane as (
  (select queue, priority from reliq.jobs where ready order by queue, priority limit 1)
  union all
  select next.queue, next.priority
  from lane cross join lateral (
    select j.queue, j.priority from reliq.jobs j
    where j.ready and (j.queue, j.priority) > (lane.queue, lane.priority)
    order by j.queue, j.priority limit 1
  ) as next
)
select queue, priority from lane;
