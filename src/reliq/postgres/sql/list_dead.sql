-- list_dead: the newest dead letters, each with the job a person made from it.
--
--   $1  kind   text
--   $2  error  text
--   $3  since  interval
--   $4  queue  text
--   $5  sort   text
--   $6  limit  bigint
--
-- The error is asked for by its fingerprint, or by a part of its text, in capitals or not. The sort is
-- `open`, those that wait for a person: neither made anew nor ignored; `ignored`; or `all`.
-- `offset 0`: jobs are looked up behind the walk, newest first, until there are enough, and not of every letter.
-- Reads:   index attempts_buried, jobs_requeued_from
-- Returns: id bigint, kind text, died_at timestamptz, reason text, attempt integer,
--          status integer, error text, fingerprint text, requeued_as bigint,
--          ignored_at timestamptz, ignored_by text, ignore_reason text
with newest as materialized (
  select * from (
    select * from reliq.attempts
    where buried
      and case $5::text when 'open' then ignored_at is null when 'ignored' then ignored_at is not null else true end
      and ($1::text is null or kind = $1)
      and ($2::text is null or fingerprint = $2 or strpos(lower(error), lower($2)) > 0)
      and ($3::interval is null or ended_at >= reliq.now() - $3)
    order by ended_at desc offset 0
  ) as a
  where ($4::text is null or (select queue from reliq.jobs where id = a.job_id) = $4)
    and case $5::text when 'open' then not exists (select from reliq.jobs
          where requeued_from = a.job_id and requeued_from is not null) else true end
  limit $6
)
select j.id, j.kind, a.ended_at as died_at, j.dead_reason as reason, a.attempt, a.status,
       j.last_error as error, a.fingerprint, next.id as requeued_as,
       a.ignored_at, a.ignored_by, a.ignore_reason
from newest a
join reliq.jobs j on j.id = a.job_id
left join reliq.jobs next on next.requeued_from = j.id
order by a.ended_at desc;
