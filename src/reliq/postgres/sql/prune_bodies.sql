-- prune_bodies: empty the bodies of old events, walking $2 events from behind $1.
--
--   $1  after    bigint
--   $2  walk     bigint
--   $3  read     interval
--   $4  dead     interval
--   $5  ignored  interval
--
-- Event, headers and key stay. What could not be read, and was not replayed, is kept as long as a
-- dead letter: its body is all there is of it. The walk is over where a whole batch is younger.
-- Reads:   index events_with_body
-- Returns: walked_to bigint, pruned bigint
with walk as materialized (
  select id, received_at,
         case when parse_error is null or replayed_at is not null then $3::interval
              when ignored_at is not null then $5::interval
              else $4::interval end as keep
  from reliq.events where body is not null and id > $1 order by id limit $2
),
old as (
  update reliq.events set body = null
  where id = any (array(select id from walk where received_at < reliq.now() - keep))
  returning id
)
select (select max(id) from walk
        having count(*) = $2 and bool_or(
          received_at < reliq.now() - least($3::interval, $4::interval, $5::interval))) as walked_to,
       (select count(*) from old) as pruned;
