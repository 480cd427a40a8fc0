-- 0008_families: children of jobs, and the one job that is made when all of them have ended.
-- phase: expand

alter table reliq.jobs add column parent_id bigint;   -- written when the job is made, never again
create index jobs_children on reliq.jobs (parent_id, id) where parent_id is not null;

-- A job that has fanned out, and what follows. It counts nothing: whether a child is still open
-- is read from the children. `walked_to` is a mark as the reaper's: no child before it is open.
create table reliq.parents (
  job_id        bigint      primary key,
  children      int         not null,      -- as many as were made
  on_failure    text        not null check (on_failure in ('hold', 'continue')),
  walked_to     bigint      not null default 0,
  fanned_out_at timestamptz not null default reliq.now(),
  finished_at   timestamptz,               -- set once, by the statement that makes the final job
  then_kind     text        not null,
  then_payload  jsonb       not null,
  then_run_in   interval    not null,
  then_queue    text        not null,
  then_priority smallint    not null
) with (fillfactor = 50);
create index parents_finished on reliq.parents (finished_at, job_id);

-- Where the children of a job are. A dead one that was made anew is counted as the new job.
create function reliq.count_children(
  parent bigint,
  out queued bigint, out running bigint, out succeeded bigint, out dead bigint, out cancelled bigint
)
  language sql stable parallel safe
as $$
  select count(*) filter (where j.state = 'queued'),
         count(*) filter (where j.state = 'running'),
         count(*) filter (where j.state = 'succeeded'),
         count(*) filter (where j.state = 'dead'),
         count(*) filter (where j.state = 'cancelled')
  from reliq.jobs j
  where j.parent_id = parent
    and not (j.state = 'dead'
             and (select anew.id from reliq.jobs anew where anew.requeued_from = j.id) is not null)
$$;

-- The first child from an id on that still holds the final job. Walks the index in its order and
-- stops: the settings leave the planner no other way, whatever it believes of the table.
create function reliq.first_open_child(parent bigint, from_id bigint, on_failure text)
  returns bigint
  language sql stable parallel safe
  set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
as $$
  select j.id from reliq.jobs j
  where j.parent_id is not null
    and (j.parent_id, j.id) >= (parent, from_id)
    and (j.parent_id, j.id) <= (parent, 9223372036854775807)
    and (j.state in ('queued', 'running')
         or j.state = 'dead' and on_failure = 'hold'
            and (select anew.id from reliq.jobs anew where anew.requeued_from = j.id) is null)
  order by j.parent_id, j.id limit 1
$$;

create view reliq.families as
select p.job_id as parent_id, p.children, p.children - c.queued - c.running as done,
       c.queued, c.running, c.succeeded, c.dead, c.cancelled,
       p.on_failure, p.then_kind, k.job_id as final_job_id, p.fanned_out_at, p.finished_at
from reliq.parents p
cross join lateral reliq.count_children(p.job_id) as c
left join reliq.job_keys k
  on p.finished_at is not null and k.scope = p.then_kind and k.key = 'family:' || p.job_id;

comment on view reliq.families is 'one row for each job that has fanned out: how far its children are';
comment on column reliq.families.parent_id is 'the job that made the children';
comment on column reliq.families.children is 'how many it made';
comment on column reliq.families.done is 'how many have ended, in whatever way';
comment on column reliq.families.queued is 'children that wait, also for a retry';
comment on column reliq.families.running is 'children that run';
comment on column reliq.families.succeeded is 'children that succeeded and are not pruned yet';
comment on column reliq.families.dead is 'children that are dead letters and were not made anew';
comment on column reliq.families.cancelled is 'children that were cancelled';
comment on column reliq.families.on_failure is 'what a dead child does: hold or continue';
comment on column reliq.families.then_kind is 'the kind of the final job';
comment on column reliq.families.final_job_id is 'the final job, once it is made; null when its key is forgotten';
comment on column reliq.families.fanned_out_at is 'when the children were made';
comment on column reliq.families.finished_at is 'when the final job was made';
