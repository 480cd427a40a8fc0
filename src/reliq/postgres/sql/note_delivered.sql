-- note_delivered: an endpoint answered well; whatever row of failures there was has ended.
--
--   $1  name    text
--   $2  job_id  bigint
--   $3  fence   bigint
--   $4  url     text
--
-- Keeps:   stale-workers-change-nothing (id and fence).
-- Reads:   index endpoints_pkey, jobs_pkey
-- Returns: name text
update reliq.endpoints set failing_since = null, failures = 0
where name = $1 and url = $4 and failing_since is not null and reliq.holds($2, $3)
returning name;
