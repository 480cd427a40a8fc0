-- requeue_jobs: a new job from each of many dead letters; they stay as they are.
--
--   $1  ids           bigint[]
--   $2  by            text
--   $3  reason        text
--   $4  first         interval
--   $5  apart         interval
--   $6  even_ignored  boolean
--
-- As requeue_job: at most one per dead letter. Those that have one, or get one from somebody else
-- at this moment, are left out, and no row of theirs is locked: that job may be running. Written by their numbers, so that no two callers can deadlock;
-- due in the order of $1, the first in $4, each further one $5 later. The letters are locked until the
-- copies are there: no change of keys comes in between.
-- Keeps:   requeue-once, terminal-is-final.
-- Reads:   index jobs_pkey, jobs_requeued_from, attempts_ignored
-- Returns: id bigint, job_id bigint
insert into reliq.jobs
  (kind, payload, key, queue, priority, group_key, event_id, attempts_max, parent_id,
   requeued_from, requeued_by, requeue_reason, ready, blocked, first_at, run_at)
select kind, payload, key, queue, priority, group_key, event_id, attempts_max, parent_id,
       id, $2, $3, group_key is null, group_key is not null, coalesce(first_at, created_at),
       reliq.now() + $4::interval + $5::interval * (array_position($1::bigint[], id) - 1)
from reliq.jobs
where id = any ($1::bigint[])
  and (state = 'dead'
       and ($6::boolean
            or not exists (select from reliq.attempts a
                           where a.job_id = jobs.id and a.ignored_at is not null))) is true
order by id for share
on conflict (requeued_from) where requeued_from is not null do nothing
returning requeued_from as id, id as job_id;
