-- note_endings: let the breakers of queues know how attempts ended.
--
--   $1  queues    text[]
--   $2  ids       bigint[]
--   $3  fences    bigint[]
--   $4  failed    boolean[]
--
-- Closed: a success ends a row of failures, and enough failures in a row open it. Open: only the
-- probe counts; its success closes it, its failure keeps it open for its time once more.
-- Reads:   index limits_pkey
-- Returns: queue text, open boolean
with ended as materialized (
  select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::boolean[])
    as t (queue, id, fence, failed)
),
told as (
  select l.queue, l.open_until is not null as open,
         count(*) filter (where t.failed) as failures,
         count(*) filter (where not t.failed) as successes,
         bool_or(t.failed) filter (where (t.id, t.fence) = (l.probe_id, l.probe_fence))
           as probe_failed
  from ended t
  join reliq.limits l on l.queue = t.queue and l.opens_after is not null
  group by l.queue
)
update reliq.limits l set
  failures = case when told.open then case when told.probe_failed is false then 0
                                           else l.failures end
                  when told.successes > 0 then 0
                  else l.failures + told.failures end,
  open_until = case when told.open and told.probe_failed is false then null
                    when told.open and told.probe_failed then reliq.now() + l.open_for
                    when told.open then l.open_until
                    when told.successes = 0 and l.failures + told.failures >= l.opens_after
                    then reliq.now() + l.open_for end
from told
where l.queue = told.queue
  and (told.probe_failed is not null or not told.open and (told.failures > 0 or l.failures > 0))
returning l.queue, l.open_until is not null as open;
