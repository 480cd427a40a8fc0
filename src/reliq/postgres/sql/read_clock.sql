-- read_clock: the database's clock as it is, for comparison with ours.
--
-- Nothing that a job depends on reads it; all else asks reliq.now().
-- Returns: now timestamptz
select clock_timestamp() as now;
