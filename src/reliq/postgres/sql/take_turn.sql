-- take_turn: whether it is ours to do $1; nobody else is told so for the next $2.
--
--   $1  what  text
--   $2  lasts interval
--
-- Whoever asks at the same moment waits for the first one's row, and then finds it taken.
-- Reads:   index turns_pkey
-- Returns: ends_at timestamptz
insert into reliq.turns as turn (what, ends_at) values ($1, reliq.now() + $2::interval)
on conflict (what) do update set ends_at = excluded.ends_at where turn.ends_at <= reliq.now()
returning ends_at;
