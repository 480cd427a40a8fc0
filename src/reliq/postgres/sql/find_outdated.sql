-- find_outdated: of the next $3 jobs behind $1, those whose payload $2 finds; and the last, to go on from.
--
--   $1  after     bigint
--   $2  pattern   text
--   $3  walk      bigint
--   $4  families  boolean
--
-- With $4 it is about the final jobs that families wait for, under the ids of the parents.
-- Reads:   index jobs_pkey
-- Returns: id bigint, payload jsonb, outdated boolean
with walk as materialized (
  (select id, payload from reliq.jobs
   where not $4::boolean and id > $1 order by id limit $3)
  union all
  (select job_id, then_payload from reliq.parents
   where $4::boolean and job_id > $1 order by job_id limit $3)
),
looked as (
  select id, payload, payload::text ~ $2 as outdated, id = max(id) over () as is_last from walk
)
select id, payload, outdated from looked where outdated or is_last order by id;
