-- 0009_reports: what a report is made of, chunk by chunk, until it is fetched.
-- phase: expand

-- A report has the number of the job that asks for it: whoever enqueues that can make a link at
-- once, and a job that runs twice makes one report. What was asked for stands in that job's payload.
-- How far it is stands nowhere: it is read from the parts that are there.
create table reliq.reports (
  id          bigint      primary key,
  name        text        not null,
  chunks      int         not null,        -- as many as were asked for; each is a child of job `id`
  state       text        not null default 'running' check (state in ('running', 'ready', 'failed')),
  rows        bigint,                      -- of all parts, once the report has come to its end
  reason      text,                        -- why it failed
  file        text,                        -- its address, where the content went elsewhere
  created_at  timestamptz not null default reliq.now(),
  finished_at timestamptz
);
create index reports_finished on reliq.reports (finished_at, id);

-- The content in pieces that fit into memory, in the order of the key; chunk 0 is the line of names.
create table reliq.report_parts (
  report_id bigint not null,
  chunk     int    not null,
  part      int    not null,
  rows      bigint not null,
  content   text   not null,
  primary key (report_id, chunk, part)
);

comment on table reliq.reports is 'reports that were asked for, one row each';
comment on column reliq.reports.id is 'its number: that of the job of kind report.request that made it';
comment on column reliq.reports.name is 'which report of the App it is';
comment on column reliq.reports.chunks is 'how many jobs of kind report.chunk make it';
comment on column reliq.reports.state is 'running; ready: every chunk is there; failed: it ended, and some are not';
comment on column reliq.reports.rows is 'how many rows it has; null while it is running';
comment on column reliq.reports.reason is 'why it failed';
comment on column reliq.reports.file is 'the address of its content where that was put elsewhere; else null, and the parts are it';
comment on column reliq.reports.created_at is 'when its chunks were made';
comment on column reliq.reports.finished_at is 'when it became ready or failed';
comment on table reliq.report_parts is 'the content of reports, written with the success of the job that made it';
comment on column reliq.report_parts.report_id is 'the report';
comment on column reliq.report_parts.chunk is 'from 1 in the order of the content; 0 is the line of names';
comment on column reliq.report_parts.part is 'from 1 within the chunk, at most a quarter of a million characters and a row each';
comment on column reliq.report_parts.rows is 'rows in this part';
comment on column reliq.report_parts.content is 'CSV, whole lines';
