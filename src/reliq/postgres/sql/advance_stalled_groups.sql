-- advance_stalled_groups: do so for groups of which a head ended and its worker died right then.
--
-- Skips from group to group along the index of those who wait; locks only what stalls.
-- Keeps:   group-in-order.
-- Reads:   index jobs_blocked, job_groups_pkey, jobs_pkey
-- Returns: advanced bigint
with recursive waiting as (
  (select group_key from reliq.jobs where blocked order by group_key limit 1)
  union all
  select next.group_key
  from waiting cross join lateral (
    select j.group_key from reliq.jobs j
    where j.blocked and j.group_key > waiting.group_key
    order by j.group_key limit 1
  ) as next
),
stalled as materialized (
  select w.group_key from waiting w
  where (select g.running <= (
           select count(*) from reliq.jobs j
           where j.id = any (g.heads) and j.state in ('queued', 'running'))
         from reliq.job_groups g where g.key = w.group_key) is not true
)
select case when exists (select from stalled)
            then reliq.advance_groups(array(select group_key from stalled)) else 0 end as advanced;
