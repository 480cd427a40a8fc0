-- find_cancelled: of the jobs that a worker holds, those that somebody wants to be cancelled.
--
--   $1  ids     bigint[]
--   $2  fences  bigint[]
--
-- Asked when a notification says so; whoever misses it learns it from the renewal of the lease.
-- Reads:   index jobs_pkey
-- Returns: id bigint
select id from reliq.jobs
where id = any ($1::bigint[])
  and ((id, fence) in (select * from unnest($1::bigint[], $2::bigint[]))) is true
  and state = 'running' and cancel_requested_at is not null;
