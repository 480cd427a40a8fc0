-- end_families: what follows a child's end: families that none holds any more get their final job.
--
--   $1  parents  bigint[]
--
-- Asked in a snapshot of its own after the child's settle has committed: of two last children
-- the later one sees both. May be repeated at will: the row's lock and `finished_at` let one
-- through, and a child that holds nothing now will never hold again, so that what was read before
-- the lock is still true behind it. A job made anew of a dead child is a child with a later id.
-- The mark moves on by a thousand ids at least, so that of many children few are looked at. Before
-- a family ends all are: of two made anew the later may have been committed first.
-- Rows are locked in their own order, so that two workers cannot deadlock.
-- Keeps:   family-once.
-- Reads:   index parents_pkey
-- Returns: parent_id bigint, job_id bigint
with asked as materialized (
  select p.job_id, p.walked_to, coalesce(
    reliq.first_open_child(p.job_id, p.walked_to, p.on_failure),
    reliq.first_open_child(p.job_id, 0, p.on_failure)) as held_by
  from reliq.parents p
  where p.job_id = any ($1::bigint[]) and (p.finished_at is null) is true
),
due as materialized (
  select job_id from reliq.parents
  where job_id = any (array(
      select job_id from asked where held_by is null or held_by >= walked_to + 1000))
    and (finished_at is null) is true
  order by job_id for no key update
),
moved as (
  update reliq.parents p set (walked_to, finished_at) = (
    select greatest(p.walked_to, held_by), case when held_by is null then reliq.now() end
    from asked where asked.job_id = p.job_id)
  where job_id = any (array(select job_id from due))
  returning p as parent
)
select (parent).job_id as parent_id, final.job_id
from (select parent from moved where (parent).finished_at is not null
      order by (parent).job_id) as ended
cross join lateral reliq.count_children((parent).job_id) as c
cross join lateral reliq.enqueue(
  (parent).then_kind,
  (parent).then_payload || jsonb_build_object('family', jsonb_build_object(
    'parent_id', (parent).job_id, 'children', (parent).children,
    'succeeded', c.succeeded, 'dead', c.dead, 'cancelled', c.cancelled)),
  'family:' || (parent).job_id, (parent).then_run_in, (parent).then_queue, (parent).then_priority
) as final;
