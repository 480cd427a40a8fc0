-- settle_with_result: as settle_succeeded, for jobs whose handlers had something to tell.
--
--   $1  ids      bigint[]
--   $2  fences   bigint[]
--   $3  results  jsonb[]
--
-- Apart, so that jobs without a result pay nothing. `result` is in no index: the update is HOT.
-- Keeps:   stale-workers-change-nothing (id and fence), terminal-is-final.
-- Reads:   index jobs_pkey
-- Returns: id bigint
update reliq.jobs set
  state = 'succeeded', finished_at = reliq.now(), lost_leases = 0,
  result = ($3::jsonb[])[array_position($1::bigint[], id)]
where id = any ($1::bigint[])
  and ((id, fence) in (select * from unnest($1::bigint[], $2::bigint[]))) is true
  and state = 'running'
returning id;
