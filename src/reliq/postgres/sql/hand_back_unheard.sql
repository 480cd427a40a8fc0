-- hand_back_unheard: running jobs of this worker whose claim it never heard of go back, untried.
--
--   $1  worker  text
--   $2  heard   bigint[]
--   $3  fences  bigint[]
--
-- For a claim whose reply was lost with the connection. Running jobs lie at or behind the
-- reaper's mark, so the index of moments bounds the look. What is to be cancelled is cancelled.
-- Keeps:   one-live-lease (only rows of this incarnation), attempts-count-tries.
-- Reads:   index jobs_reap
-- Returns: id bigint
with moved as (
  update reliq.jobs j set
    state = case when j.cancel_requested_at is null then 'queued' else 'cancelled' end,
    ready = j.cancel_requested_at is null,
    finished_at = case when j.cancel_requested_at is not null then reliq.now() end,
    run_at = reliq.now(), attempt = j.attempt - 1,
    lease_until = null, reap_at = null
  where j.reap_at >= (select walked_to from reliq.reaper where one)
    and j.state = 'running' and j.worker = $1
    and ((j.id, j.fence) in (select * from unnest($2::bigint[], $3::bigint[]))) is not true
  returning j.id, j.fence, j.kind, j.worker, j.claimed_at, j.attempt + 1 as attempt
),
recorded as (
  insert into reliq.attempts (job_id, fence, attempt, kind, worker, started_at, ended)
  select id, fence, attempt, kind, worker, claimed_at, 'handed_back' from moved
)
select id from moved;
