-- show_job: one job, whole.
--
--   $1  id  bigint
--
-- Reads:   index jobs_pkey, attempts_ignored
-- Returns: id bigint, kind text, state text, key text, queue text, priority smallint,
--          payload jsonb, attempt integer, attempts_max integer, lost_leases smallint,
--          fence bigint, worker text, event_id bigint, created_at timestamptz,
--          run_at timestamptz, claimed_at timestamptz, lease_until timestamptz,
--          finished_at timestamptz, dead_reason text, last_error text, requeued_from bigint,
--          requeued_by text, requeue_reason text, result jsonb, requeued_as bigint,
--          cancel_requested_at timestamptz, cancel_requested_by text, cancel_reason text,
--          ignored text
select id, kind, state, key, queue, priority, payload, attempt, attempts_max, lost_leases,
       fence, worker, event_id, created_at, run_at, claimed_at,
       case when state = 'running' then lease_until end as lease_until, finished_at,
       dead_reason, last_error, requeued_from, requeued_by, requeue_reason,
       result,
       (select next.id from reliq.jobs next where next.requeued_from = jobs.id) as requeued_as,
       cancel_requested_at, cancel_requested_by, cancel_reason,
       (select ignored_by || ': ' || ignore_reason from reliq.attempts
        where job_id = jobs.id and ignored_at is not null) as ignored
from reliq.jobs where id = $1;
