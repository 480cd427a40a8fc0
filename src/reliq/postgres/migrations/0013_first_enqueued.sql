-- 0013_first_enqueued: a job that was made anew knows when the first of its dead letters was enqueued.
-- phase: expand

alter table reliq.jobs add column first_at timestamptz;
comment on column reliq.jobs.first_at is
  'of a job that was made of a dead letter: when the first of its letters was enqueued, which may be pruned';
