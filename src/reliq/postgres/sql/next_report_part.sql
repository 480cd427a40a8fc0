-- next_report_part: the piece of a report that comes behind chunk $2, part $3.
--
--   $1  report_id  bigint
--   $2  chunk      integer
--   $3  part       integer
--
-- One at a time, so that who reads slowly holds neither memory nor a connection.
-- Reads:   index report_parts_pkey
-- Returns: chunk integer, part integer, rows bigint, content text
select chunk, part, rows, content from reliq.report_parts
where report_id = $1 and (chunk, part) > ($2, $3)
order by report_id, chunk, part limit 1;
