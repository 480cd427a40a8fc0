-- find_lanes: the (queue, priority) pairs that have queued jobs and are not paused.
--
-- Skips along the index. Which queues have limits, and which kinds are paused, comes along.
-- Reads:   index jobs_ready, limits_pkey, pauses_pkey
-- Returns: queue text, priority smallint, limited_queues text[], paused_kinds text[]
select lane.queue, lane.priority,
       array(select l.queue from reliq.limits l order by 1) as limited_queues,
       array(select p.name from reliq.pauses p where p.scope = 'kind') as paused_kinds
from reliq.lanes() as lane
where not exists (select from reliq.pauses p where p.scope = 'queue' and p.name = lane.queue);
