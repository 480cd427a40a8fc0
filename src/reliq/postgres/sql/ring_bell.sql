-- ring_bell: tell every listening worker that there may be work.
--
-- One for many commits and outside of them: the server sends notifications one commit at a
-- time, under a lock, so that a NOTIFY inside every enqueue would cost more than the enqueue.
-- Reads:   nothing
-- Returns: pg_notify void
select pg_notify('reliq_wake', '');
