-- insert_report_part: write a piece of a report, in the transaction that settles its chunk's job.
--
--   $1  report_id  bigint
--   $2  chunk      integer
--   $3  part       integer
--   $4  rows       bigint
--   $5  content    text
--
-- No row back: the report has come to its end, or is gone, and nobody would ever read the piece.
-- Keeps:   rows-once (primary key, and the fence of the settle).
-- Reads:   index reports_pkey
-- Returns: part integer
insert into reliq.report_parts (report_id, chunk, part, rows, content)
select $1::bigint, $2::int, $3::int, $4::bigint, $5::text
from reliq.reports where id = $1 and state = 'running'
returning part;
