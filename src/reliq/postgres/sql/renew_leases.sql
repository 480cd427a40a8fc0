-- renew_leases: lengthen the leases a worker holds; what is not returned is lost.
--
--   $1  ids     bigint[]
--   $2  fences  bigint[]
--   $3  lease   interval
--
-- A lease that has ended is not lengthened: its place under a limit may be another job's by now.
-- No indexed column changes: the update is HOT. The lease of a job that is to be cancelled is left
-- to run out, so that a handler that does not stop cannot hold the job for ever.
-- Keeps:   stale-workers-change-nothing (id and fence).
-- Reads:   index jobs_pkey
-- Returns: id bigint, cancelled boolean
update reliq.jobs set
  lease_until = case when cancel_requested_at is null then reliq.now() + $3::interval
                     else lease_until end
where id = any ($1::bigint[])
  and ((id, fence) in (select * from unnest($1::bigint[], $2::bigint[]))) is true
  and (state = 'running' and lease_until > reliq.now()) is true
returning id, cancel_requested_at is not null as cancelled;
