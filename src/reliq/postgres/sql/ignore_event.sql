-- ignore_event: note that somebody looked at a delivery that could not be read, and leaves it.
--
--   $1  id      bigint
--   $2  by      text
--   $3  reason  text
--
-- Reads:   index events_pkey
-- Returns: unread boolean, ignored text
with event as materialized (
  select parse_error is not null and replayed_at is null as unread,
         ignored_by || ': ' || ignore_reason as ignored
  from reliq.events where id = $1
),
noted as (
  update reliq.events set ignored_at = reliq.now(), ignored_by = $2, ignore_reason = $3
  where id = $1 and parse_error is not null and replayed_at is null and ignored_at is null
)
select unread, ignored from event;
