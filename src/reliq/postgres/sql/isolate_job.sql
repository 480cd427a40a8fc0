-- isolate_job: say that a suspect now runs with nothing beside it, and renew its lease, unless it
-- is to be cancelled.
--
--   $1  id     bigint
--   $2  fence  bigint
--   $3  lease  interval
--
-- Keeps:   stale-workers-change-nothing (id and fence).
-- Reads:   index jobs_pkey
-- Returns: id bigint
update reliq.jobs set alone = true, lease_until = reliq.now() + $3::interval
where id = $1 and fence = $2 and (state = 'running' and lease_until > reliq.now()) is true and cancel_requested_at is null
returning id;
