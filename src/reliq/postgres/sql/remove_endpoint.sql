-- remove_endpoint: an endpoint and its secrets are forgotten, and so are the limits of its queue.
--
--   $1  name   text
--   $2  queue  text
--
-- Reads:   index endpoints_pkey, limits_pkey
-- Returns: name text
with removed as (delete from reliq.endpoints where name = $1 returning name),
lifted as (delete from reliq.limits where queue = $2 and exists (select from removed))
select name from removed;
