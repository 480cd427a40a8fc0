-- requeue_job: a new job from a dead letter; the dead letter stays as it is.
--
--   $1  id            bigint
--   $2  by            text
--   $3  reason        text
--   $4  even_ignored  boolean
--
-- In its group it comes last. At most one per dead letter, whoever asks at the same time: the
-- second gets the first's job. The new job keeps the key that handlers pass on to providers, and
-- its family. A dead letter that somebody ignored is left alone unless $4; `ignored` then says who
-- did, and why. The letter is locked until the copy is there: no change of keys comes in between.
-- Keeps:   requeue-once, terminal-is-final.
-- Reads:   index jobs_pkey, jobs_requeued_from, attempts_ignored
-- Returns: state text, job_id bigint, fresh boolean, ignored text, group_key text
with dead as materialized (
  select *, (select ignored_by || ': ' || ignore_reason from reliq.attempts
             where job_id = $1 and ignored_at is not null and not $4::boolean) as ignored
  from reliq.jobs where id = $1 for share
),
made as (
  insert into reliq.jobs as j
    (kind, payload, key, queue, priority, group_key, event_id, attempts_max,
     parent_id, requeued_from, requeued_by, requeue_reason, ready, blocked, first_at)
  select kind, payload, key, queue, priority, group_key, event_id, attempts_max, parent_id, id,
         $2, $3, group_key is null, group_key is not null, coalesce(first_at, created_at)
  from dead where state = 'dead' and ignored is null
  on conflict (requeued_from) where requeued_from is not null
    do update set requeued_from = excluded.requeued_from
  returning id, xmax = 0 as fresh
)
select dead.state, made.id as job_id, made.fresh, dead.ignored, dead.group_key
from dead left join made on true;
