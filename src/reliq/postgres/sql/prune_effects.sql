-- prune_effects: forget up to $2 effects that were done longer than $1 ago.
--
--   $1  age    interval
--   $2  limit  bigint
--
-- What is not done stays: nobody knows what became of it.
-- Reads:   index effect_keys_done
-- Returns: pruned bigint
with gone as (
  delete from reliq.effect_keys where ctid = any (array(
    select ctid from reliq.effect_keys where done_at <= reliq.now() - $1::interval
    order by done_at limit $2 for update skip locked))
  returning 1
)
select count(*) as pruned from gone;
