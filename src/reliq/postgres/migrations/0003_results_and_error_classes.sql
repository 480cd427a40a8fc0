-- 0003_results_and_error_classes: what a job came to, and of which class an attempt's error was.
-- phase: expand

alter table reliq.jobs add column result jsonb;            -- null: there is none
alter table reliq.attempts add column error_class text;    -- null: nothing was raised
