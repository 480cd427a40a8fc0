-- 0010_endpoints: where outgoing webhooks go.
-- phase: expand

create table reliq.endpoints (
  name          text        primary key,
  url           text        not null,
  sealed        jsonb       not null,      -- {"secrets": …}: one or two, newest first, sealed
  rotated_at    timestamptz,               -- since then the newest signs; the other one, a day longer
  disabled_at   timestamptz,
  disabled_why  text,
  failing_since timestamptz,               -- of a row of failures that no success has ended
  failures      int         not null default 0,
  created_at    timestamptz not null default reliq.now(),
  check ((disabled_at is null) = (disabled_why is null))
) with (fillfactor = 50);
