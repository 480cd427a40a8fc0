-- reserve_effect: a running job is about to do something outside, known by its key.
--
--   $1  key    text
--   $2  id     bigint
--   $3  fence  bigint
--
-- Keeps:   stale-workers-change-nothing (id and fence).
-- Reads:   index effect_keys_pkey, jobs_pkey
-- Returns: answer text, holder bigint, result jsonb
select answer, holder, result from reliq.reserve_effect($1, $2, $3);
