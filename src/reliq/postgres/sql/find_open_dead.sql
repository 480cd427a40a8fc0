-- find_open_dead: the dead letters of a filter from which no new job was made, the oldest first.
--
--   $1  kind          text
--   $2  error         text
--   $3  since         interval
--   $4  queue         text
--   $5  even_ignored  boolean
--
-- The filter is that of list_dead, but for the ignored ones, which come besides.
-- Reads:   index attempts_buried, jobs_requeued_from
-- Returns: id bigint, kind text, fingerprint text, error text
select a.job_id as id, a.kind, a.fingerprint, left(a.error, 200) as error
from reliq.attempts a
where a.buried
  and (a.ignored_at is null or $5::boolean)
  and ($1::text is null or a.kind = $1)
  and ($2::text is null or a.fingerprint = $2 or strpos(lower(a.error), lower($2)) > 0)
  and ($3::interval is null or a.ended_at >= reliq.now() - $3)
  and ($4::text is null or (select queue from reliq.jobs where id = a.job_id) = $4)
  and (not exists (select from reliq.jobs
                   where requeued_from = a.job_id and requeued_from is not null)) is true
order by a.ended_at, a.job_id;
