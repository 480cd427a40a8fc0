-- find_open: of the next $2 jobs behind $1, those of a filter that wait or run; and the last, to go on from.
--
--   $1  after      bigint
--   $2  walk       bigint
--   $3  kind       text
--   $4  queue      text
--   $5  group_key  text
--   $6  since      interval
--
-- Null does not ask; $6 counts from when a job was made.
-- Reads:   index jobs_pkey
-- Returns: id bigint, state text, fits boolean
with walk as materialized (
  select id, state,
         state in ('queued', 'running')
         and ($3::text is null or kind = $3)
         and ($4::text is null or queue = $4)
         and ($5::text is null or (group_key = $5) is true)
         and ($6::interval is null or created_at >= reliq.now() - $6) as fits
  from reliq.jobs where id > $1 order by id limit $2
)
select id, state, fits from walk where fits or id = (select max(id) from walk) order by id;
