-- claim_limited_jobs: lease due jobs of one queue that has limits, as many as they allow.
--
--   $1  places       bigint
--   $2  lease        interval
--   $3  worker       text
--   $4  queue        text
--   $5  priorities   smallint[]
--   $6  after_run_at timestamptz[]
--   $7  after_id     bigint[]
--   $8  kinds        text[]
--   $9  attempts_max integer[]
--
-- Keeps:   one-live-lease (skip locked), fence-rises, limits-hold.
-- Reads:   index limits_pkey, limit_places_pkey, jobs_pkey, jobs_ready
-- Returns: id bigint, fence bigint, kind text, key text, payload jsonb, attempt integer,
--          attempts_max integer, lost_leases smallint, event_id bigint, queue text,
--          priority smallint, run_at timestamptz, waited interval, group_key text
select id, fence, kind, key, payload, attempt, attempts_max, lost_leases, event_id, queue,
       priority, run_at, reliq.now() - run_at as waited, group_key
from reliq.claim_limited($4, $1, $2, $3, $5, $6, $7, $8, $9);
