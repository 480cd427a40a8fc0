"""
The shipped SQL, each time with one promise taken out of it.

A mutant changes a few words of a statement or of a migration. It is named by what it does, so
that a list of the survivors, if there ever are any, says what nobody would notice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.model.desk import DeskMoves
from tests.model.effects import EffectMoves
from tests.model.families import FamilyMoves
from tests.model.groups import GroupMoves
from tests.model.jobs import JobMoves
from tests.model.limits import LimitMoves
from tests.model.player import Player


@dataclass(frozen=True, slots=True)
class Change:
    """In the text `where`, `there` becomes `instead`."""

    where: str
    there: str
    instead: str = ""


FENCE = (
    "and ((id, fence) in (select * from unnest($1::bigint[], $2::bigint[]))) is true\n",
    "and $2::bigint[] is not null\n",
)
"""Parameters stay in use: Postgres refuses one whose type nothing tells."""

TABLES = "0001_first_tables"
GROUPS = "0002_groups"
EFFECTS = "0005_effect_keys"
CANCEL = "0006_cancel"
LIMITS = "0007_limits"
FAMILIES = "0008_families"
ALERTS = "0012_alerts_in_turn"

MUTANTS: Mapping[type[Player], Mapping[str, tuple[Change, ...]]] = {
    JobMoves: {
        # Whoever comes late with an old lease is let in.
        "success is written without the fence": (Change("settle_succeeded", *FENCE),),
        "a retry is written without the fence": (Change("settle_queued", *FENCE),),
        "a burial is written without the fence": (Change("settle_dead", *FENCE),),
        "a result is written without the fence": (Change("settle_with_result", *FENCE),),
        "a lease is renewed without the fence": (Change("renew_leases", *FENCE),),
        "a job is isolated without the fence": (
            Change("isolate_job", "where id = $1 and fence = $2 and", "where id = $1 and $2 > 0 and"),
        ),
        "an ended job's lease is renewed": (Change("renew_leases", "state = 'running' and "),),
        "a dead job succeeds after all": (
            Change("settle_succeeded", "and state = 'running'", "and state in ('running', 'dead')"),
        ),
        "a lease that has ended is renewed": (
            Change("renew_leases", " and lease_until > reliq.now()", ""),
        ),
        # Claim.
        "claim takes jobs that are not due": (
            Change("claim_jobs", "j.run_at <= reliq.now() and ", ""),
        ),
        "claim leaves the fence as it is": (Change("claim_jobs", "fence = fence + 1, "),),
        "claim counts no attempt": (Change("claim_jobs", "attempt = attempt + 1,"),),
        "claim takes running jobs again": (
            Change("claim_jobs", "where j.ready and", "where (j.ready or j.state = 'running') and"),
        ),
        "claim takes a full batch from every lane": (
            Change("claim_jobs", ") as due\n  limit $1", ") as due"),
        ),
        "claim takes kinds it has no handler for": (
            Change("claim_jobs", "and j.kind = any ($8::text[])\n", "\n"),
        ),
        # Reaper.
        "the reaper takes live leases": (
            Change("reap_jobs", "lease_until > reliq.now() as live", "false as live"),
        ),
        "the reaper comes a moment late": (
            Change("reap_jobs", "lease_until > reliq.now() as live", "lease_until >= reliq.now() as live"),
        ),
        "the reaper never takes": (
            Change("reap_jobs", "from hit where not live))\n  returning j", "from hit where false))\n  returning j"),
        ),
        "the reaper allows one attempt too many": (
            Change("reap_jobs", "attempt >= attempts_max as spent", "attempt > attempts_max as spent"),
        ),
        "the reaper forgets lost leases": (
            Change("reap_jobs", "lost_leases = j.lost_leases + 1", "lost_leases = 0"),
        ),
        "the second lost lease is poison": (
            Change("reap_jobs", "lost_leases >= 2 as poison", "lost_leases >= 1 as poison"),
        ),
        "the fourth lost lease is poison": (
            Change("reap_jobs", "lost_leases >= 2 as poison", "lost_leases >= 3 as poison"),
        ),
        "a job that had company is poison": (
            Change("reap_jobs", "alone and lost_leases >= 2", "lost_leases >= 2"),
        ),
        # Back to the queue.
        "a hand-back costs an attempt": (
            Change("settle_queued", "in ('again', 'handed_back'))::int,\n    lost", "in ('again'))::int,\n    lost"),
        ),
        "again costs an attempt": (
            Change("settle_queued", "in ('again', 'handed_back'))::int,\n    lost", "in ('handed_back'))::int,\n    lost"),
        ),
        "a hand-back ends a row of lost leases": (
            Change("settle_queued", "then lost_leases else 0 end", "then 0 else 0 end"),
        ),
        "a retry does not wait": (
            Change("settle_queued", "reliq.now() + ($3", "reliq.now() + 0 * ($3"),
        ),
        "a worker hands back what it has heard of": (
            Change(
                "hand_back_unheard",
                "and ((j.id, j.fence) in (select * from unnest($2::bigint[], $3::bigint[]))) is not true",
                "and $2::bigint[] is not null and $3::bigint[] is not null",
            ),
        ),
        "a worker hands back what others run": (
            Change("hand_back_unheard", "and j.worker = $1\n", "and $1 <> ''\n"),
        ),
        # What is to be cancelled.
        "a retry forgets that its job is to be cancelled": (
            Change("settle_queued", "state = case when cancel_requested_at is null then 'queued' else 'cancelled' end", "state = 'queued'"),
            Change("settle_queued", "ready = cancel_requested_at is null", "ready = true"),
            Change("settle_queued", "case when cancel_requested_at is not null then reliq.now() end", "null"),
        ),
        "the reaper forgets that a job is to be cancelled": (
            Change("reap_jobs", "cancel_requested_at is not null as cancelled", "false as cancelled"),
        ),
        "a hand-back unheard forgets that its job is to be cancelled": (
            Change("hand_back_unheard", "state = case when j.cancel_requested_at is null then 'queued' else 'cancelled' end", "state = 'queued'"),
            Change("hand_back_unheard", "ready = j.cancel_requested_at is null", "ready = true"),
            Change("hand_back_unheard", "case when j.cancel_requested_at is not null then reliq.now() end", "null"),
        ),
        "the lease of a job to be cancelled is renewed": (
            Change("renew_leases", "case when cancel_requested_at is null then reliq.now() + $3::interval\n                     else lease_until end", "reliq.now() + $3::interval"),
        ),
        "a cancel takes a running job from its worker": (
            Change(CANCEL, "case j.state when 'queued' then 'cancelled' else j.state end", "'cancelled'"),
        ),
        "a cancel reaches what has ended": (
            Change(CANCEL, "and (j.state = 'queued' or (j.state = 'running' and j.cancel_requested_at is null))"),
        ),
        # Once per key, all or nothing.
        "a delivery that comes again makes a second event": (
            Change("store_event", "(expires_at > reliq.now()) is true", "false"),
            Change(
                "store_event",
                "or exists (select from holder h where h.event_id = d.id)",
                "or exists (select from holder)",
            ),
        ),
        "a key that has expired keeps events away": (
            Change(
                "store_event",
                "event_id = case when k.expires_at <= reliq.now() then excluded.event_id else k.event_id end",
                "event_id = k.event_id",
            ),
        ),
        "a job's key does not keep a second job away": (
            Change(GROUPS, "duplicate := holder <> new_id;", "duplicate := false;"),
        ),
        "an event is stored without its jobs": (
            Change("store_event", "nulls first, w.ord\n  ) as w", "nulls first, w.ord limit 0\n  ) as w"),
        ),
        "an error raises no alert": (
            Change("settle_dead", "case when $8::boolean and", "case when not $8::boolean and"),
        ),
        "one error is told of again": (
            Change(ALERTS, "dead.kind || ':' || fingerprint || ':'", "dead.kind || ':' || fingerprint || dead.id || ':'"),
        ),
        "alerts of a window know no bound": (
            Change(ALERTS, "where p.taken_in < began order by", "order by"),
        ),
        "a window's places are never free again": (
            Change(ALERTS, "where p.taken_in < began order by", "where p.taken_in = -1 order by"),
        ),
    },
    GroupMoves: {
        "a group goes on while its head waits for a retry": (
            Change(GROUPS, "j.state in ('queued', 'running')", "j.state = 'running'"),
        ),
        "a group has more heads than places": (
            Change(GROUPS, "limit live.running - cardinality(live.heads)", "limit live.running"),
        ),
        "a group whose worker died in between stands still": (
            Change("advance_stalled_groups", "then reliq.advance_groups(array(select group_key from stalled))", "then 0"),
        ),
        "a cancelled head holds up its group": (
            Change(CANCEL, "if found_state = 'cancelled' and group_of", "if false and group_of"),
        ),
        "a dead letter made anew overtakes its group": (
            Change("requeue_job", "$2, $3, group_key is null, group_key is not null", "$2, $3, true, false"),
        ),
    },
    LimitMoves: {
        "a lease that has ended fills a place": (Change(LIMITS, " and j.lease_until > reliq.now()"),),
        "whoever comes probes an open breaker": (
            Change(LIMITS, 'or reliq.holds("limit".probe_id, "limit".probe_fence)\n'),
        ),
        "a token is spent twice": (
            Change(LIMITS, "now_free.tokens - (select count(*) from taken)", "now_free.tokens"),
        ),
        "a success leaves failures in a row": (
            Change("note_endings", "when told.successes > 0 then 0", "when told.successes > 0 then l.failures"),
        ),
        "a paused queue is claimed": (Change("find_lanes", "p.scope = 'queue' and", "false and"),),
        "a paused kind is claimed": (Change("find_lanes", "p.scope = 'kind'", "false"),),
    },
    FamilyMoves: {
        "a family ends while a child waits": (
            Change(FAMILIES, "j.state in ('queued', 'running')", "j.state = 'running'"),
        ),
        "a family ends twice": (
            Change("end_families", "= any ($1::bigint[]) and (p.finished_at is null) is true", "= any ($1::bigint[])"),
            Change("end_families", "    and (finished_at is null) is true\n"),
        ),
        "a dead child that was made anew still holds its family": (
            Change(
                FAMILIES,
                "\n            and (select anew.id from reliq.jobs anew where anew.requeued_from = j.id) is null)",
                ")",
            ),
        ),
    },
    EffectMoves: {
        "an effect is reserved without the fence": (
            Change(EFFECTS, "and j.fence = reserve_effect.fence\n"),
        ),
        "an effect is done by who has ended": (
            Change("finish_effect", "and state = 'running' for share", "for share"),
        ),
        "an effect is released by who has ended": (
            Change("release_effect", "and state = 'running' for share", "for share"),
        ),
        "an effect is released by whose job another has": (
            Change("release_effect", "and job_id = $2 and fence = $3 and done_at", "and job_id = $2 and done_at"),
            Change("release_effect", "and fence = $3 and state", "and $3 > 0 and state"),
        ),
        "an effect that is done is released": (Change("release_effect", " and done_at is null"),),
        "a dead holder is still at its effect": (
            Change(EFFECTS, "j.id = held.job_id and j.fence = held.fence and", "j.id = held.job_id and"),
        ),
    },
    DeskMoves: {
        "a dead letter is requeued twice": (
            Change(TABLES, "create unique index jobs_requeued_from", "create index jobs_requeued_from"),
            Change(
                "requeue_job",
                "on conflict (requeued_from) where requeued_from is not null\n"
                "    do update set requeued_from = excluded.requeued_from\n",
            ),
        ),
        "an ignored dead letter is made anew with the others": (
            Change("requeue_jobs", "a.job_id = jobs.id and a.ignored_at is not null", "false"),
        ),
        "who ignores a dead letter last is remembered": (
            Change("ignore_jobs", "\n    and ignored_at is null"),
        ),
        "a group is forgotten while its head runs": (
            Change(
                GROUPS,
                "where (select true from reliq.jobs j where j.id = any (g.heads) limit 1) is not true\n      and",
                "where",
            ),
            Change(
                GROUPS,
                "any (idle)\n    and (select true from reliq.jobs j where j.id = any (g.heads) limit 1) is not true\n",
                "any (idle)\n",
            ),
        ),
        "what was made of a dead letter is forgotten before it": (
            Change("prune_jobs", "letter.id = walk.requeued_from", "false"),
        ),
    },
}  # fmt: skip


def changed(texts: Mapping[str, str], changes: Iterable[Change]) -> dict[str, str]:
    """
    Return the texts with the changes made.

    Raises:
        ValueError: what a change looks for is not there, or is there twice.

    """
    found = dict(texts)
    for change in changes:
        if (times := found[change.where].count(change.there)) != 1:
            raise ValueError(f"{change.where} has {change.there!r} {times} times, not once")
        found[change.where] = found[change.where].replace(change.there, change.instead)
    return found
