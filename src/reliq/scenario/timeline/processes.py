"""The lanes of processes: when each one lived, what it wrote, and the leases that workers held."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from reliq.scenario.history import Entry, Holding
from reliq.scenario.timeline.lanes import tone_of_end
from reliq.scenario.timeline.picture import Lane, Mark, pack
from reliq.scenario.timeline.scene import Scene, stem

_LIFE_ROW: Final = 24.0
_LIFE_Y: Final = 15.0
_LEASE_ROW: Final = 19.0
_LEASE: Final = 15.0
_ROWS_MAX: Final = 16
_RUN_NAMES: Final = ("drill.started", "drill.ended")


@dataclass(slots=True)
class _Life:
    """One incarnation of a process."""

    name: str
    started: Entry | None = None
    exited: Entry | None = None


@dataclass(slots=True)
class _Process:
    """What was seen of a process in all its incarnations."""

    said: list[Entry] = field(default_factory=list)
    held: list[Holding] = field(default_factory=list)
    stored: list[Entry] = field(default_factory=list)
    ended: list[Entry] = field(default_factory=list)


def processes(scene: Scene) -> list[Lane]:
    """Draw a lane for each receiver, for each worker, and for each process that is neither."""
    found: dict[str, _Process] = defaultdict(_Process)
    for entry in scene.history.entries:
        if entry.src == "process" and entry.p:
            found[stem(entry.p)].said.append(entry)
        elif (entry.src, entry.e) == ("wal", "event"):
            found[stem(entry.p)].stored.append(entry)
    for holding in chain.from_iterable(scene.history.holdings().values()):
        found[stem(holding.claim.p)].held.append(holding)
        if holding.end and stem(holding.end.p) != stem(holding.claim.p):
            found[stem(holding.end.p)].ended.append(holding.end)
    lanes = []
    for name, seen in sorted(found.items(), key=lambda item: _natural(item[0])):
        if seen.held or name.startswith("worker"):
            lanes.append(_worker(scene, name, seen))
        elif seen.said or name.startswith("receiver"):
            group = "receivers" if name.startswith("receiver") else "processes"
            marks = [*_life_marks(scene, seen), *_stored(scene, seen)]
            lanes.append(Lane(group=group, name=name, height=_LIFE_ROW, marks=tuple(marks)))
    return lanes


def _worker(scene: Scene, name: str, seen: _Process) -> Lane:
    runs = _runs(scene, seen)
    bundles = [list(_lease(scene, held, runs)) for held in seen.held]
    bundles += [[run] for run in runs.values()]  # of attempts that nobody was seen to claim
    spans = [_span(bundle) for bundle in bundles]
    rows = pack(spans, rows_max=_ROWS_MAX, gap=1.0)
    marks = [*_life_marks(scene, seen), *_strange_ends(scene, seen)]
    for bundle, row in zip(bundles, rows, strict=True):
        marks += [replace(mark, y=mark.y + _LIFE_ROW + row * _LEASE_ROW) for mark in bundle]
    height = _LIFE_ROW + _LEASE_ROW * (max(rows, default=-1) + 1) + 2
    return Lane(group="workers", name=name, height=height, marks=tuple(marks))


def _span(bundle: Sequence[Mark]) -> tuple[float, float]:
    """Return the room of a lease; an expiry that is hidden at first takes none."""
    seen = [mark for mark in bundle if mark.tone != "quiet"]
    return min(mark.x for mark in seen), max(mark.x + mark.width for mark in seen)


def _lease(scene: Scene, held: Holding, runs: dict[tuple[int, int], Mark]) -> Iterator[Mark]:
    """Draw one lease: the bar, its expiry, its renewals, and the handler that ran under it."""
    end, job, attempt = held.end, held.job, held.claim.a.get("attempt")
    until = end.t if end else scene.span[1]
    expires = scene.expiry((held.renewals or [held.claim])[-1])
    how = end.e if end else "never ended"
    yield scene.bar(
        (held.claim.t, until), (held.claim, end), tone_of_end(end.e if end else None),
        y=0.0, height=_LEASE, text=f"{job}·{attempt}", part="lease", attempt=attempt,
        head=f"lease of job {job}, attempt {attempt}: {how}, granted until {scene.ms(expires)}",
    )  # fmt: skip
    is_overdue = until > expires
    if is_overdue:
        yield replace(
            scene.bar((expires, until), (), "overdue", y=0.0, height=_LEASE),
            jobs=(job,), head=f"job {job}: the lease had run out at {scene.ms(expires)}",
        )  # fmt: skip
    if expires <= scene.span[1]:
        yield Mark(
            shape="expiry", x=scene.x(expires), y=_LEASE / 2, jobs=(job,),
            tone="late" if is_overdue else "quiet",
            head=f"job {job}, attempt {attempt}: the lease ends at {scene.ms(expires)}",
        )  # fmt: skip
    for renewal in held.renewals:
        yield scene.point(renewal, 2.0, "renewal", "notch")
    if run := runs.pop((job, held.claim.a.get("attempt", 0)), None):
        yield run


def _runs(scene: Scene, seen: _Process) -> dict[tuple[int, int], Mark]:
    """Return the run of each attempt's handler; one that never ended did so with its process."""
    found: dict[tuple[int, int], Mark] = {}
    ended = {_attempt(x): x for x in seen.said if x.e == "drill.ended"}
    for began in (x for x in seen.said if x.e == "drill.started"):
        job, attempt = key = _attempt(began)
        end = ended.get(key)
        stop = end or next(
            (x for x in seen.said if x.e == "exited" and x.p == began.p and x.i > began.i), None
        )
        how = str(end.a.get("how", "ended")) if end else "cut off"
        found[key] = scene.bar(
            (began.t, stop.t if stop else scene.span[1]), (began, end),
            f"run {how}" if how in {"raised", "cancelled"} else "run",
            y=_LEASE - 5, height=4.0, head=f"handler of job {job}, attempt {attempt}: {how}",
        )  # fmt: skip
    return found


def _attempt(entry: Entry) -> tuple[int, int]:
    return entry.a.get("job", 0), entry.a.get("attempt", 0)


def _life_marks(scene: Scene, seen: _Process) -> Iterator[Mark]:
    """Draw the incarnations one after the other, and what they wrote."""
    for life in _lives(seen.said):
        ends = (
            life.started.t if life.started else scene.span[0],
            life.exited.t if life.exited else scene.span[1],
        )
        yield scene.bar(ends, (), "life", y=_LIFE_Y - 1, height=2.0, head=life.name)
        if life.started:
            yield scene.point(life.started, _LIFE_Y, "life", "start")
            if "#" in life.name:
                text = "#" + life.name.partition("#")[2]
                yield Mark(shape="text", x=scene.x(ends[0]), y=9.0, tone="word", text=text)
        if life.exited:
            yield scene.point(life.exited, _LIFE_Y, "exit", "exit")
            text = _how(life.exited)
            yield Mark(
                shape="text", x=scene.x(ends[1]), y=9.0, tone="word", text=text, is_left=True
            )
    told = {"started", "exited", *_RUN_NAMES}
    for entry in seen.said:
        if entry.e not in told:
            shape = "dot" if entry.e == "drill.point" else "tick"
            yield scene.point(entry, _LIFE_Y, "line", shape, height=8.0)


def _lives(said: Sequence[Entry]) -> list[_Life]:
    """Return the incarnations in order; a line that is read after the exit starts no new one."""
    lives: list[_Life] = []
    latest: dict[str, _Life] = {}
    for entry in said:
        if entry.e == "started" or entry.p not in latest:
            latest[entry.p] = life = _Life(entry.p)
            lives.append(life)
        if entry.e == "started":
            latest[entry.p].started = entry
        elif entry.e == "exited":
            latest[entry.p].exited = entry
    return lives


def _how(exited: Entry) -> str:
    code = exited.a.get("code")
    if not isinstance(code, int):
        return "exited"
    return f"signal {-code}" if code < 0 else f"exit {code}"


def _strange_ends(scene: Scene, seen: _Process) -> Iterator[Mark]:
    """Draw where a process ended what another one held: a reaper, or one who came too late."""
    for end in seen.ended:
        yield scene.point(end, _LIFE_Y, tone_of_end(end.e), "dot", part="end",
                          attempt=end.a.get("attempt"))  # fmt: skip


def _stored(scene: Scene, seen: _Process) -> Iterator[Mark]:
    return (scene.point(x, _LIFE_Y, "stored", height=8.0) for x in seen.stored)


def _natural(name: str) -> tuple[int, str, int, str]:
    """Sort receivers before workers before others, and `worker-10` after `worker-2`."""
    rank = next((n for n, x in enumerate(("receiver", "worker")) if name.startswith(x)), 2)
    head, _, number = name.rpartition("-")
    return rank, head, int(number) if number.isdecimal() else 0, name
