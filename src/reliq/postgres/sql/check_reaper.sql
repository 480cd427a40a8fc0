-- check_reaper: pull the reaper's mark back behind every running job, and make sure it exists.
--
-- A claim can commit after its own lease has ended, behind the mark; this look at the whole
-- index of moments finds it. Done at start, and every ten minutes by whichever worker is first.
-- Reads:   index jobs_reap
-- Returns: walked_to timestamptz
insert into reliq.reaper as r (one, walked_to, checked_at)
values (true, '-infinity', reliq.now())
on conflict (one) do update set
  walked_to = least(r.walked_to,
                    (select min(reap_at) from reliq.jobs
                     where reap_at is not null and state = 'running')),
  checked_at = reliq.now()
returning walked_to;
