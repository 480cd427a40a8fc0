-- advance_groups: the next job of each group becomes its head, where the head has ended.
--
--   $1  keys  text[]
--
-- After the settlement that ended a head, in a transaction of its own; may be repeated at will.
-- Keeps:   group-in-order.
-- Reads:   index job_groups_pkey, jobs_blocked, jobs_pkey
-- Returns: advanced bigint
select reliq.advance_groups($1::text[]) as advanced;
