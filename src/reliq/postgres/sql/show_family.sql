-- show_family: how far the children of one job are.
--
--   $1  parent  bigint
--
-- Reads:   index parents_pkey
-- Returns: children integer, done bigint, queued bigint, running bigint, succeeded bigint,
--          dead bigint, cancelled bigint, on_failure text, then_kind text, final_job_id bigint,
--          fanned_out_at timestamptz, finished_at timestamptz
select children, done, queued, running, succeeded, dead, cancelled, on_failure, then_kind,
       final_job_id, fanned_out_at, finished_at
from reliq.families where parent_id = $1;
