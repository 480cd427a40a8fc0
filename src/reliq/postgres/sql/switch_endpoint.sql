-- switch_endpoint: an endpoint is disabled for a reason, or, without one, enabled, its failures forgotten.
--
--   $1  name  text
--   $2  why   text
--
-- Reads:   index endpoints_pkey
-- Returns: name text
update reliq.endpoints set
  disabled_at = case when $2::text is not null then reliq.now() end, disabled_why = $2,
  failing_since = case when $2::text is not null then failing_since end,
  failures = case when $2::text is not null then failures else 0 end
where name = $1
returning name;
