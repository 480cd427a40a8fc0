-- prune_bodies: empty the bodies of events older than $1, walking $4 events from behind $3.
--
--   $1  age       interval
--   $2  dead_age  interval
--   $3  after     bigint
--   $4  walk      bigint
--
-- Event and key stay. What could not be read, and was not replayed, is kept as long as a dead
-- letter: its body is all there is of it.
-- Reads:   index events_with_body
-- Returns: walked_to bigint, pruned bigint
with walk as materialized (
  select id, received_at, parse_error is not null and replayed_at is null as unread
  from reliq.events where body is not null and id > $3 order by id limit $4
),
old as (
  update reliq.events set body = null
  where id = any (array(
    select id from walk
    where received_at < reliq.now() - case when unread then $2::interval else $1::interval end))
  returning id
)
select (select max(id) from walk) as walked_to, (select count(*) from old) as pruned;
