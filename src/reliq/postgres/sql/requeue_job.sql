-- requeue_job: a new job from a dead letter; the dead letter stays as it is.
--
--   $1  id      bigint
--   $2  by      text
--   $3  reason  text
--
-- At most one per dead letter, whoever asks at the same time: the second gets the first's
-- job. The new job keeps the key that handlers pass on to providers, and its family.
-- Keeps:   requeue-once, terminal-is-final.
-- Reads:   index jobs_pkey, jobs_requeued_from
-- Returns: state text, job_id bigint, fresh boolean
with dead as materialized (select * from reliq.jobs where id = $1),
made as (
  insert into reliq.jobs as j
    (kind, payload, key, queue, priority, group_key, event_id, attempts_max,
     parent_id, requeued_from, requeued_by, requeue_reason)
  select kind, payload, key, queue, priority, group_key, event_id, attempts_max, parent_id, id,
         $2, $3
  from dead where state = 'dead'
  on conflict (requeued_from) where requeued_from is not null
    do update set requeued_from = excluded.requeued_from
  returning id, xmax = 0 as fresh
)
select dead.state, made.id as job_id, made.fresh from dead left join made on true;
