-- settle_succeeded: finished jobs leave the queue, if they are still ours.
--
--   $1  ids     bigint[]
--   $2  fences  bigint[]
--
-- Pairs are matched in a hashed subplan, immune to a stale generic plan; `is true` keeps the
-- planner from turning it into a join. No indexed column changes: the update is HOT.
-- Keeps:   stale-workers-change-nothing (id and fence), terminal-is-final.
-- Reads:   index jobs_pkey
-- Returns: id bigint
update reliq.jobs set
  state = 'succeeded', finished_at = reliq.now(), lost_leases = 0
where id = any ($1::bigint[])
  and ((id, fence) in (select * from unnest($1::bigint[], $2::bigint[]))) is true
  and state = 'running'
returning id;
