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
select j.id, j.kind, a.ended_at as died_at, j.dead_reason as reason, a.attempt, a.status,
       j.last_error as error, a.fingerprint, next.id as requeued_as,
       a.ignored_at, a.ignored_by, a.ignore_reason
from reliq.attempts a
join reliq.jobs j on j.id = a.job_id
left join reliq.jobs next on next.requeued_from = j.id
where a.buried
  and (a.ignored_at is not null) = $4::boolean
  and ($1::text is null or a.kind = $1)
  and ($2::text is null or a.fingerprint = $2 or strpos(lower(a.error), lower($2)) > 0)
  and ($3::interval is null or a.ended_at >= reliq.now() - $3)
order by a.ended_at desc
limit $5;
