-- insert_report: a report is about to be made of so many chunks.
--
--   $1  id      bigint
--   $2  name    text
--   $3  chunks  integer
--
-- Keeps:   report-once (primary key).
-- Returns: nothing
insert into reliq.reports (id, name, chunks) values ($1, $2, $3);
