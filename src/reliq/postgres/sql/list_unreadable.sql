-- list_unreadable: the newest events that could not be read and were not replayed since.
--
--   $1  since  interval
--   $2  limit  bigint
--
-- Reads:   index events_unreadable
-- Returns: id bigint, source text, received_at timestamptz, error text
select id, source, received_at, parse_error as error
from reliq.events
where parse_error is not null and replayed_at is null and body is not null
  and ($1::interval is null or received_at >= reliq.now() - $1)
order by id desc
limit $2;
