-- list_dead: the newest dead letters, each with the job a person made from it.
--
--   $1  kind   text
--   $2  since  interval
--   $3  limit  bigint
--
-- Reads:   index attempts_buried
-- Returns: id bigint, kind text, died_at timestamptz, reason text, attempt integer,
--          status integer, error text, requeued_as bigint
select j.id, j.kind, a.ended_at as died_at, j.dead_reason as reason, a.attempt, a.status,
       j.last_error as error, next.id as requeued_as
from reliq.attempts a
join reliq.jobs j on j.id = a.job_id
left join reliq.jobs next on next.requeued_from = j.id
where a.buried
  and ($1::text is null or a.kind = $1)
  and ($2::interval is null or a.ended_at >= reliq.now() - $2)
order by a.ended_at desc
limit $3;
