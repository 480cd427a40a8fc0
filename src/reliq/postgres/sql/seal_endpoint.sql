-- seal_endpoint: other secrets for an endpoint, or the same sealed anew, if they are what was read.
--
--   $1  name     text
--   $2  read     jsonb
--   $3  sealed   jsonb
--   $4  rotated  boolean
--
-- Reads:   index endpoints_pkey
-- Returns: name text
update reliq.endpoints set
  sealed = $3, rotated_at = case when $4::boolean then reliq.now() else rotated_at end
where name = $1 and sealed = $2
returning name;
