"""The lanes but those of processes: faults, senders, commits, upstream, and what else was seen."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from reliq.scenario.history import Entry
from reliq.scenario.timeline.picture import WIDTH, Lane, Mark, pack, text_width
from reliq.scenario.timeline.scene import Scene, began_of, stem

KINDS: Final = (
    "event", "job", "slot", "claim", "renew", "succeeded", "failed", "again", "release",
    "lease-lost", "cancelled", "dead", "effect", "effect-reserved", "effect-done", "effect-released", "write", "gone",
    "statement",
)  # fmt: skip
_TONE_OF_END: Final = {
    "failed": "failed", "again": "again", "release": "released", "lease-lost": "lost",
    "dead": "lost", "succeeded": "done", "cancelled": "released",
}  # fmt: skip
_FAULT_ROW: Final = 18.0
_BAR_ROW: Final = 12.0
_TICK_ROW: Final = 12.0
_TOP: Final = 4.0
_ROWS_MAX: Final = 8


def tone_of_end(e: str | None) -> str:
    """Return the tone of how a claim ended; nobody knows how an open one will."""
    return "open" if e is None else _TONE_OF_END.get(e, "plain")


def faults(scene: Scene) -> Lane:
    """Draw each fault from its start until it was healed, with its name beside it."""
    drawn = [_fault(scene, fault) for fault in scene.history.of("fault", "fired")]
    rows = pack([_room_of(mark, name) for mark, name in drawn], gap=4)
    marks = [
        replace(mark, y=mark.y + _TOP + row * _FAULT_ROW)
        for pair, row in zip(drawn, rows, strict=True)
        for mark in pair
    ]
    height = _TOP + _FAULT_ROW * (max(rows, default=0) + 1)
    return Lane(group="faults", name="faults", height=height, marks=tuple(marks))


def _fault(scene: Scene, fault: Entry) -> tuple[Mark, Mark]:
    """Draw a fault, and its name to the right of it; or to the left, or on it, for want of room."""
    cure = cure_of(scene, fault)
    if cure:
        mark = scene.bar((fault.t, cure.t), (fault, cure), "fault", y=0.0, height=11.0)
    else:
        mark = scene.point(fault, 6.0, "fault", "bolt")
    text, right = _name_of(fault), mark.x + mark.width
    has_right, has_left = right + _room(text) <= WIDTH, mark.x - _room(text) >= 0
    x = right if has_right else mark.x
    is_left = has_left and not has_right
    return mark, Mark(shape="text", x=x, y=10.0, tone="word", text=text, is_left=is_left)


def _room_of(mark: Mark, name: Mark) -> tuple[float, float]:
    """Return from where to where a fault and its name reach."""
    ends = name.x - _room(name.text) if name.is_left else name.x + _room(name.text)
    return min(mark.x, ends), max(mark.x + mark.width, ends)


def _room(text: str) -> float:
    return text_width(text) + 12


def cure_of(scene: Scene, fault: Entry) -> Entry | None:
    """Return what undid a fault: its healing, or for a freeze the signal that ended it."""
    later = [x for x in scene.history.of("fault", "healed", "fired") if x.i > fault.i]
    for one in later:
        is_same = one.a.get("to") == fault.a.get("to")
        if one.e == "healed" and is_same and one.a.get("step") == fault.a.get("step"):
            return one
        if fault.a.get("sig") == "STOP" and is_same and one.a.get("sig") in {"CONT", "KILL"}:
            return one
    return None


def senders(scene: Scene) -> Lane:
    """Draw deliveries by their outcome, and what operators did."""
    tones = {"accepted": "done", "refused": "failed", "unknown": "unknown"}
    bars = []
    for entry in scene.history.of("driver", "delivery", "requeued", "enqueued"):
        ends = began_of(entry) or entry.t, entry.t
        tone = tones.get(str(entry.a.get("outcome")), "plain")
        part = "delivery" if entry.e == "delivery" else ""
        head = f"{entry.e} {entry.a.get('key', '')} {entry.a.get('outcome', '')}".rstrip()
        bars.append(scene.bar(ends, (entry,), tone, y=0.0, height=8.0, part=part, head=head))
    return _packed("senders", "senders", bars)


def upstream(scene: Scene) -> Lane:
    """Draw calls by the status of their answers; one without a whole answer is hollow."""
    bars = []
    for calls in scene.history.calls().values():
        for call in calls:
            request, response = call.request, call.response
            status = response.a.get("status") if response else None
            is_whole = response is not None and response.a.get("how", "whole") == "whole"
            tone = _tone_of_status(status) if is_whole else "unknown"
            how = f"{status}" if is_whole else response.a["how"] if response else "unanswered"
            ends = request.t, response.t if response else _given_up(scene, request)
            bars.append(scene.bar(
                ends, (request, response), tone, y=0.0, height=10.0, part="call",
                attempt=call.attempt, text="" if tone == "done" else how,
                head=f"call of job {request.a['job']}, attempt {call.attempt}: {how}",
            ))  # fmt: skip
    return _packed("upstream", "upstream calls", sorted(bars, key=lambda bar: bar.x))


def _given_up(scene: Scene, request: Entry) -> int:
    """Return when a call without an answer was over: with its caller, or with the run."""
    exits = scene.history.of("process", "exited")
    return next((x.t for x in exits if x.p == request.p and x.i > request.i), scene.span[1])


def commits(scene: Scene) -> Lane:
    """Draw every change as a tick, a row for each kind; statements that changed nothing are left out."""
    seen = [x for x in scene.history.entries if x.src == "wal" and not is_idle(scene, x)]
    kinds = [kind for kind in KINDS if any(x.e == kind for x in seen)]
    kinds += sorted({x.e for x in seen} - set(kinds))
    height = {kind: _TOP + 6 + row * _TICK_ROW for row, kind in enumerate(kinds)}
    marks = [
        scene.point(
            x, height[x.e], _TONE_OF_END.get(x.e, "plain"), height=8.0,
            part="job" if x.e == "job" else "",
        )
        for x in seen
    ]  # fmt: skip
    return Lane(
        group="commits",
        name="Postgres commits",
        height=2 * _TOP + _TICK_ROW * max(len(kinds), 1),
        marks=tuple(marks),
        rows=tuple((y, kind) for kind, y in height.items()),
    )


def is_idle(scene: Scene, entry: Entry) -> bool:
    """Say whether it is a statement that changed nothing, and no witness."""
    is_empty = (entry.src, entry.e) == ("wal", "statement") and not entry.a.get("rows")
    return is_empty and entry.i not in scene.numbers


def rest(scene: Scene, lanes: Iterable[Lane]) -> Lane:
    """Draw what no other lane shows: the machine's lateness, and names unknown here."""
    drawn = {i for lane in lanes for mark in lane.marks for i in mark.entries}
    left = [x for x in scene.history.entries if x.i not in drawn and not is_idle(scene, x)]
    marks = tuple(scene.point(x, 10.0, "plain", height=8.0) for x in left)
    return Lane(group="machine", name="machine, other", height=20.0, marks=marks)


def bands(scene: Scene, tops: Mapping[str, tuple[float, float]]) -> list[Mark]:
    """Shade the lane of each victim while its fault lasted."""
    found = []
    for fault in scene.history.of("fault", "fired"):
        place, cure = tops.get(stem(str(fault.a.get("to", "")))), cure_of(scene, fault)
        if place and cure:
            top, height = place
            band = scene.bar((fault.t, cure.t), (), "band", y=top, height=height)
            found.append(band)
    return found


def _packed(group: str, name: str, bars: list[Mark]) -> Lane:
    """Put bars into as many rows as it takes that they do not meet."""
    rows = pack([(bar.x, bar.x + max(bar.width, 2)) for bar in bars], rows_max=_ROWS_MAX)
    marks = [replace(bar, y=_TOP + row * _BAR_ROW) for bar, row in zip(bars, rows, strict=True)]
    height = 2 * _TOP + _BAR_ROW * (max(rows, default=0) + 1)
    return Lane(group=group, name=name, height=height, marks=tuple(marks))


def _name_of(fault: Entry) -> str:
    fields = fault.a
    do = fields.get("sig") or fields.get("do") or ""
    to = f" → {fields['to']}" if fields.get("to") else ""
    miss = "" if fields.get("hits") else ", hit nobody"
    return _short(f"{fields.get('step', 'fault')}: {do}{to}{miss}")


def _short(text: str) -> str:
    """Shorten a name for use in the picture."""
    return text if len(text) <= 60 else text[:59] + "…"  # noqa: PLR2004 - what is left to read


def _tone_of_status(status: object) -> str:
    return "done" if isinstance(status, int) and status < 300 else "failed"  # noqa: PLR2004 - HTTP's own
