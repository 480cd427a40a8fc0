-- 0005_effect_keys: what was done outside, remembered by its key.
-- phase: expand

-- Who is at an effect, or was; apart from jobs, because a key outlives them. Whether the holder still
-- is at it, its job's own row says.
create table reliq.effect_keys (
  key         text        primary key,
  job_id      bigint      not null,
  fence       bigint      not null,
  reserved_at timestamptz not null default reliq.now(),
  done_at     timestamptz,
  result      jsonb
) with (fillfactor = 90);
create index effect_keys_done on reliq.effect_keys (done_at) where done_at is not null;

-- Reserve an effect for a job that runs under this fence. Always answers: `new`; `unknown`, where
-- the one before came to its end and never said how; `done` with the result; `taken`, where another
-- job is at it; `lost`, where the job is no longer the caller's, and nothing was written.
-- The holder's row is read after the key's was locked, in a snapshot of its own: a holder that came
-- while we waited is seen. The job's row stays locked to the end, so that nobody takes it over
-- in between.
create function reliq.reserve_effect(
  key    text,
  job_id bigint,
  fence  bigint,
  out answer text,
  out holder bigint,
  out result jsonb
)
  language plpgsql
as $$
#variable_conflict use_column
declare
  held reliq.effect_keys;
begin
  perform from reliq.jobs j
  where j.id = reserve_effect.job_id and j.fence = reserve_effect.fence
    and j.state = 'running' and j.lease_until > reliq.now()
  for share;
  if not found then
    answer := 'lost';
    return;
  end if;
  loop
    insert into reliq.effect_keys (key, job_id, fence)
    values (reserve_effect.key, reserve_effect.job_id, reserve_effect.fence)
    on conflict (key) do nothing;
    if found then
      answer := 'new';
      return;
    end if;
    select * into held from reliq.effect_keys e where e.key = reserve_effect.key for update;
    exit when found;   -- else it was pruned just now
  end loop;
  if held.done_at is not null then
    answer := 'done';
    result := held.result;
    return;
  end if;
  perform from reliq.jobs j
  where j.id = held.job_id and j.fence = held.fence and j.id <> reserve_effect.job_id
    and j.state = 'running' and j.lease_until > reliq.now();
  if found then
    answer := 'taken';
    holder := held.job_id;
    return;
  end if;
  update reliq.effect_keys e set
    job_id = reserve_effect.job_id, fence = reserve_effect.fence, reserved_at = reliq.now()
  where e.key = reserve_effect.key;
  answer := 'unknown';
end
$$;
