-- prune_keys: forget up to $1 expired keys of each sort.
--
--   $1  limit  bigint
--
-- Reads:   index event_keys_expiry, job_keys_expiry
-- Returns: pruned bigint
with events as (
  delete from reliq.event_keys where ctid = any (array(
    select ctid from reliq.event_keys where expires_at <= reliq.now()
    order by expires_at limit $1 for update skip locked))
  returning 1
),
jobs as (
  delete from reliq.job_keys where ctid = any (array(
    select ctid from reliq.job_keys where expires_at <= reliq.now()
    order by expires_at limit $1 for update skip locked))
  returning 1
)
select (select count(*) from events) + (select count(*) from jobs) as pruned;
