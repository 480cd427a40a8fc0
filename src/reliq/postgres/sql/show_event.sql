-- show_event: one stored event and how many jobs were made from it.
--
--   $1  id  bigint
--
-- Reads:   index events_pkey, jobs_event
-- Returns: id bigint, source text, dedup_key text, headers jsonb, body bytea,
--          parse_error text, received_at timestamptz, age interval,
--          replayed_at timestamptz, ignored text, jobs bigint
select id, source, dedup_key, headers, body, parse_error, received_at,
       reliq.now() - received_at as age, replayed_at,
       ignored_by || ': ' || ignore_reason as ignored,
       (select count(*) from reliq.jobs where event_id = events.id) as jobs
from reliq.events where id = $1;
