-- lift_limit: a queue without limits.
--
--   $1  queue  text
--
-- Reads:   index limits_pkey
-- Returns: queue text
delete from reliq.limits where queue = $1 returning queue;
