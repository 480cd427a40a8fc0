-- hold_event_key: give a stored event the dedup key that could not be read when it came.
--
--   $1  event_id   bigint
--   $2  source     text
--   $3  dedup_key  text
--   $4  key_ttl    interval
--
-- Answers with the event that holds the key: this one, or the one that came again meanwhile.
-- Reads:   index event_keys_pkey
-- Returns: event_id bigint
insert into reliq.event_keys as k (source, key, event_id, expires_at)
values ($2, $3, $1, reliq.now() + $4::interval)
on conflict (source, key) do update set
  event_id = case when k.expires_at <= reliq.now() then excluded.event_id else k.event_id end,
  expires_at = greatest(k.expires_at, excluded.expires_at)
returning event_id;
