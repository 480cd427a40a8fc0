-- list_unreadable: the newest events that could not be read and were not replayed since.
--
--   $1  since  interval
--   $2  sort   text
--   $3  limit  bigint
--
-- The sort is that of list_dead.
-- Reads:   index events_unreadable
-- Returns: id bigint, source text, received_at timestamptz, error text,
--          ignored_at timestamptz, ignored_by text, ignore_reason text
select id, source, received_at, parse_error as error, ignored_at, ignored_by, ignore_reason
from reliq.events
where parse_error is not null and replayed_at is null and body is not null
  and case $2::text when 'open' then ignored_at is null when 'ignored' then ignored_at is not null else true end
  and ($1::interval is null or received_at >= reliq.now() - $1)
order by id desc
limit $3;
