-- resume: a queue or a kind is claimed again.
--
--   $1  scope  text
--   $2  name   text
--
-- Reads:   index pauses_pkey
-- Returns: resumed boolean
select reliq.resume($1, $2) as resumed;
