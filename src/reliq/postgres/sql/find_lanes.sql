-- find_lanes: the (queue, priority) pairs that have queued jobs and are not paused.
--
-- Skips along the index. Whether a queue has limits, and which kinds are paused, comes along.
-- Reads:   index jobs_ready, limits_pkey, pauses_pkey
-- Returns: queue text, priority smallint, limited boolean, paused_kinds text[]
select lane.queue, lane.priority,
       exists (select from reliq.limits l where l.queue = lane.queue) as limited,
       array(select p.name from reliq.pauses p where p.scope = 'kind') as paused_kinds
from reliq.lanes() as lane
where not exists (select from reliq.pauses p where p.scope = 'queue' and p.name = lane.queue);
