-- tell_time: the clock that leases, delays and slots go by.
--
-- Returns: now timestamptz
select reliq.now() as now;
