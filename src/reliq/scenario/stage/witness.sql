-- What the harness adds to a database of its own, so that the write-ahead log tells everything:
-- old rows in full, and for every statement on a table who ran it, when and on how many rows.

create schema drill;

create table drill.effects (
  job_id bigint not null, key text not null, attempt int not null,
  at timestamptz not null default clock_timestamp()
);

create table drill.clock as select interval '0' as shift;

create function drill.who() returns trigger language plpgsql as $$
declare
  n bigint;
begin
  select count(*) into n from changed;
  perform pg_logical_emit_message(true, 'who', jsonb_build_object(
    'p', current_setting('drill.p', true),
    'stmt', coalesce(substring(current_query() from '^/\* (\w+)'), ''),
    'table', tg_table_name, 'op', lower(tg_op), 'rows', n,
    'db', floor(extract(epoch from reliq.now()) * 1000000)::bigint
  )::text);
  return null;
end
$$;

do $$
declare
  name text;
begin
  foreach name in array array['reliq.jobs', 'reliq.events', 'reliq.attempts', 'reliq.limits',
                            'reliq.job_groups', 'reliq.pauses', 'reliq.parents', 'reliq.effect_keys', 'reliq.reports',
                            'reliq.report_parts', 'drill.effects']
  loop
    execute format('alter table %s replica identity full', name);
    execute format('create trigger who_inserts after insert on %s referencing new table as changed
                    for each statement execute function drill.who()', name);
    execute format('create trigger who_updates after update on %s referencing new table as changed
                    for each statement execute function drill.who()', name);
    execute format('create trigger who_deletes after delete on %s referencing old table as changed
                    for each statement execute function drill.who()', name);
  end loop;
end
$$;
