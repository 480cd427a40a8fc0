-- list_dead: the newest dead letters, each with the job a person made from it.
--
--   $1  kind     text
--   $2  error    text
--   $3  since    interval
--   $4  ignored  boolean
--   $5  limit    bigint
--
-- The error is asked for by its fingerprint, or by a part of its text, in capitals or not; those
-- that somebody ignored are listed without the others.
-- Reads:   index attempts_buried
-- Returns: id bigint, kind text, died_at timestamptz, reason text, attempt integer,
--          status integer, error text, fingerprint text, requeued_as bigint,
--          ignored_at timestamptz, ignored_by text, ignore_reason text
with newest as materialized (
  select * from reliq.attempts
  where buried
    and case when $4::boolean then ignored_at is not null else ignored_at is null end
    and ($1::text is null or kind = $1)
    and ($2::text is null or fingerprint = $2 or strpos(lower(error), lower($2)) > 0)
    and ($3::interval is null or ended_at >= reliq.now() - $3)
  order by ended_at desc
  limit $5
)
select j.id, j.kind, a.ended_at as died_at, j.dead_reason as reason, a.attempt, a.status,
       j.last_error as error, a.fingerprint, next.id as requeued_as,
       a.ignored_at, a.ignored_by, a.ignore_reason
from newest a
join reliq.jobs j on j.id = a.job_id
left join reliq.jobs next on next.requeued_from = j.id
order by a.ended_at desc;
