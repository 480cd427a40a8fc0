-- pause_queues: pause some queues, or all that are known if $1 is null; a pause that stands stays.
--
--   $1  queues  text[]
--   $2  by      text
--   $3  reason  text
--
-- Known is what has jobs that wait or run, or a limit; and `default`.
-- Reads:   index pauses_pkey, jobs_ready, jobs_reap, limits_pkey
-- Returns: name text
insert into reliq.pauses (scope, name, "by", reason)
select 'queue', known.queue, $2, $3
from (
  select queue from unnest($1::text[]) as named (queue)
  union select found.queue from (
    select queue from reliq.lanes()
    union all select queue from reliq.limits
    union all select queue from reliq.jobs
      where reap_at >= (select walked_to from reliq.reaper where one) and state = 'running'
    union all select 'default'
  ) as found where $1::text[] is null
) as known
order by known.queue
on conflict (scope, name) do nothing
returning name;
