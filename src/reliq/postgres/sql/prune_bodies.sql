-- prune_bodies: empty the bodies of up to $2 events older than $1; event and key stay.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- Reads:   index events_with_body
-- Returns: pruned bigint
with old as (
  update reliq.events set body = null
  where id = any (array(
    select id from (
      select id, received_at from reliq.events where body is not null order by id limit $2
    ) as oldest
    where received_at < reliq.now() - $1::interval))
  returning id
)
select count(*) as pruned from old;
