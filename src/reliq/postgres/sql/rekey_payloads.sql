-- rekey_payloads: write payloads whose fields were sealed anew; of the same jobs, in any state.
--
--   $1  ids       bigint[]
--   $2  read      jsonb[]
--   $3  payloads  jsonb[]
--   $4  families  boolean
--
-- A payload that is not what was read any more stays: somebody else has sealed it, with a newer key
-- perhaps, and the next pass looks at it again. The lock's own look at the row decides that.
-- Rows that somebody holds are left for the next pass: a renewal of leases must not wait behind
-- this statement while it waits for another. No indexed column changes: the update is HOT.
-- Keeps:   claims-never-wait (skip locked).
-- Reads:   index jobs_pkey
-- Returns: rekeyed bigint
with jobs as (
  update reliq.jobs set payload = ($3::jsonb[])[array_position($1::bigint[], id)]
  where id = any (array(
    select id from reliq.jobs where not $4::boolean and id = any ($1::bigint[])
      and payload = ($2::jsonb[])[array_position($1::bigint[], id)]
    for no key update skip locked))
  returning 1
),
families as (
  update reliq.parents set then_payload = ($3::jsonb[])[array_position($1::bigint[], job_id)]
  where job_id = any (array(
    select job_id from reliq.parents where $4::boolean and job_id = any ($1::bigint[])
      and then_payload = ($2::jsonb[])[array_position($1::bigint[], job_id)]
    for no key update skip locked))
  returning 1
)
select (select count(*) from jobs) + (select count(*) from families) as rekeyed;
