-- 0006_cancel: who asked when and why that a job be cancelled, and the function that asks.
-- phase: expand

alter table reliq.jobs
  add column cancel_requested_at timestamptz,
  add column cancel_requested_by text,
  add column cancel_reason       text;

-- One word more: what stands there fits already, and need not be read under this lock.
alter table reliq.attempts
  drop constraint attempts_ended_check,
  add constraint attempts_ended_check check (ended in
    ('failed', 'timed_out', 'again', 'handed_back', 'lease_lost', 'cancelled')) not valid;

-- Cancel a job: SQL of any language, inside the caller's transaction or alone. Answers the state
-- that the job is in then: `cancelled` (it waited, and nobody will run it), `running` (the request
-- is on its row: its worker stops the handler, and whatever becomes of that, it is not run again),
-- `succeeded` or `dead` (too late, nothing changes), or null: there is no such job. Who asked first
-- is remembered. A running job's worker cannot write to its row before the caller has committed.
-- A job's group is locked before the job is, as everybody does who locks both.
create function reliq.cancel(id bigint, by text, reason text default '') returns text
  language plpgsql
as $$
#variable_conflict use_column
declare
  found_state text;
  group_of    text := (select j.group_key from reliq.jobs j where j.id = cancel.id);
begin
  if (btrim(cancel.by) <> '') is not true then
    raise exception 'reliq.cancel: say who asks, in `by`' using errcode = '22023';
  end if;
  if group_of is not null then
    perform reliq.advance_groups(array[group_of]);
  end if;
  update reliq.jobs j set
    state = case j.state when 'queued' then 'cancelled' else j.state end, ready = false,
    blocked = false,
    finished_at = case j.state when 'queued' then reliq.now() end,
    cancel_requested_at = coalesce(j.cancel_requested_at, reliq.now()),
    cancel_requested_by = coalesce(j.cancel_requested_by, cancel.by),
    cancel_reason = coalesce(j.cancel_reason, cancel.reason)
  where j.id = cancel.id
    and (j.state = 'queued' or (j.state = 'running' and j.cancel_requested_at is null))
  returning j.state into found_state;
  if found_state = 'cancelled' and group_of is not null then
    perform reliq.advance_groups(array[group_of]);
  end if;
  if found_state is null then
    select j.state into found_state from reliq.jobs j where j.id = cancel.id;
  end if;
  if found_state = 'running' then   -- a hint: renewing the lease tells the worker anyhow
    perform pg_notify('reliq_wake', 'cancel');
  end if;
  return found_state;
end
$$;
