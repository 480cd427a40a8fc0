-- list_limits: queues that have limits or are paused, and paused kinds.
--
-- Reads:   index limits_pkey, pauses_pkey
-- Returns: scope text, name text, running bigint, max_running integer, rate float8,
--          burst integer, opens_after integer, open_for interval, failures integer,
--          open_until timestamptz, paused_at timestamptz, paused_by text, pause_reason text
select coalesce(p.scope, 'queue') as scope, coalesce(l.queue, p.name) as name,
       (select count(*) from reliq.limit_places place
        where place.queue = l.queue and reliq.holds(place.job_id, place.fence)) as running,
       l.max_running, l.rate, l.burst, l.opens_after, l.open_for, l.failures, l.open_until,
       p.at as paused_at, p.by as paused_by, p.reason as pause_reason
from reliq.limits l
full join reliq.pauses p on p.scope = 'queue' and p.name = l.queue
order by 1 desc, 2;
