-- advance_groups: the next jobs of each group become its heads, where heads have ended.
--
--   $1  keys  text[]
--
-- After the settlement that ended one, in a transaction of its own; may be repeated at will.
-- Keeps:   group-in-order.
-- Reads:   index job_groups_pkey, jobs_blocked, jobs_pkey
-- Returns: advanced bigint
select reliq.advance_groups($1::text[]) as advanced;
