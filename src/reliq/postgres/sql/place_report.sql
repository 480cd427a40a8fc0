-- place_report: the content of a report went elsewhere: remember where, and drop its pieces.
--
--   $1  id    bigint
--   $2  file  text
--
-- Reads:   index reports_pkey, report_parts_pkey
-- Returns: nothing
with placed as (update reliq.reports set file = $2 where id = $1)
delete from reliq.report_parts where report_id = $1;
