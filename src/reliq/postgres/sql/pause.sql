-- pause: nothing of a queue or of a kind is claimed any more, until it is resumed.
--
--   $1  scope   text
--   $2  name    text
--   $3  by      text
--   $4  reason  text
--
-- Reads:   index pauses_pkey
-- Returns: pause void
select reliq.pause($1, $2, $3, $4);
