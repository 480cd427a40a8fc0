-- note_undelivered: an attempt at an endpoint failed; the one too many disables it, with an alert.
--
--   $1  name          text
--   $2  job_id        bigint
--   $3  fence         bigint
--   $4  gone          text
--   $5  failing_for   interval
--   $6  failures_min  integer
--   $7  alerts        boolean
--   $8  url           text
--
-- With $4, why it is gone, this one is too many. The alert is a job, made here: an endpoint that is
-- disabled has one, and no more than one. Who no longer holds the job writes nothing, nor who called another address.
-- Keeps:   stale-workers-change-nothing (id and fence).
-- Reads:   index endpoints_pkey, jobs_pkey
-- Returns: disabled_why text, alert_id bigint
with noted as (
  update reliq.endpoints e set
    failing_since = coalesce(e.failing_since, reliq.now()), failures = e.failures + 1,
    disabled_at = case when too_many.why is not null then reliq.now() end,
    disabled_why = too_many.why
  from (
    select name, case
      when $4::text is not null then $4::text
      when failing_since <= reliq.now() - $5::interval and failures + 1 >= $6::integer
        then 'every attempt since ' || to_char(failing_since at time zone 'UTC', 'YYYY-MM-DD HH24:MI')
             || ' UTC has failed'
    end as why
    from reliq.endpoints where name = $1 and url = $8 and disabled_at is null for no key update
  ) as too_many
  where e.name = too_many.name and reliq.holds($2, $3)
  returning e.name, e.disabled_why
)
select n.disabled_why,
       case when $7::boolean then (
         select made.job_id from reliq.enqueue(
           'alert',
           jsonb_build_object(
             'job_id', j.id, 'kind', j.kind, 'attempt', j.attempt,
             'reason', 'its endpoint ' || n.name || ' is disabled',
             'error', n.disabled_why || '; `reliq endpoint enable ' || n.name || '` when it is well'),
           'endpoint:' || n.name || ':' || j.id || ':' || j.fence, priority => 0) as made
       ) end as alert_id
from noted n join reliq.jobs j on j.id = $2
where n.disabled_why is not null;
