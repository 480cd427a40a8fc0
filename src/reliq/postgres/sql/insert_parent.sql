-- insert_parent: a job is about to have children, if it has none yet.
--
--   $1  parent      bigint
--   $2  children    integer
--   $3  on_failure  text
--   $4  kind        text
--   $5  payload     jsonb
--   $6  run_in      interval
--   $7  queue       text
--   $8  priority    smallint
--
-- From $4 on it is the final job. No row back: an earlier run has fanned out.
-- Keeps:   family-once.
-- Reads:   index parents_pkey
-- Returns: parent_id bigint
insert into reliq.parents (job_id, children, on_failure, then_kind, then_payload, then_run_in,
                           then_queue, then_priority)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (job_id) do nothing
returning job_id as parent_id;
