-- find_lanes: the (queue, priority) pairs that have queued jobs, by skipping along the index.
--
-- Reads:   index jobs_ready
-- Returns: queue text, priority smallint
select queue, priority from reliq.lanes();
