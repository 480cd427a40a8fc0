-- cancel_jobs: cancel what waits, and ask that what runs be cancelled; through the public function.
--
--   $1  ids     bigint[]
--   $2  by      text
--   $3  reason  text
--
-- Groups are locked in the order of their keys, as everybody does, and of each the jobs in that of their
-- ids, so that two who cancel the same jobs cannot deadlock.
-- Keeps:   terminal-is-final, cancel-is-final.
-- Reads:   index jobs_pkey
-- Returns: id bigint, state text
select asked.id, reliq.cancel(asked.id, $2, $3) as state
from (
  select wanted.id from (select distinct id from unnest($1::bigint[]) as named (id)) as wanted
  order by (select j.group_key from reliq.jobs j where j.id = wanted.id) nulls first, wanted.id
) as asked;
