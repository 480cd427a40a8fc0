"""Pages of runs as they happen: a takeover, a broken promise, nothing at all, a great many jobs."""

import random
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from reliq.scenario.history import Entry, History, Terms, in_order
from reliq.scenario.invariants.kind import Violation
from reliq.scenario.timeline import timeline
from reliq.scenario.verdict import Finding

MS = 1_000_000
START = 5_000_000 * MS
DB_START = 1_795_000_000_000_000
HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
GROUPS = {"faults", "senders", "receivers", "commits", "workers", "upstream"}
TERMS = Terms(
    lease_s=1.0, poll_s=0.05, reap_every_s=0.1, retry_base_s=0.2, retry_cap_s=5.0,
    retry_jitter=0.2, attempts_max=3, slack_s=0.05,
)  # fmt: skip
LEASE = 1_000
EVIL = '<script>alert(1)</script>" onload="alert(2)\x00'


@dataclass
class Tape:
    """What witnesses would write, told in milliseconds."""

    entries: list[Entry] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def say(self, ms, src, e, p="", **fields):
        if src == "wal":
            db = DB_START + int(ms * 1000)
            fields = {"xid": len(self.entries), "stmt": e, "db": db} | fields
        self.entries.append(Entry(0, START + int(ms * MS), src, p, e, fields))

    def number(self, of):
        self.numbers[of] = n = self.numbers.get(of, 0) + 1
        return n

    def start(self, *processes):
        for n, p in enumerate(processes):
            self.say(n * 7, "process", "started", p, pid=400 + n, command=f"reliq {p}")
            self.say(160 + n * 9, "process", "ready", p)

    def deliver(self, ms, receiver="receiver-1", **fields):
        job = self.number("job")
        key, event = f"evt-{job}", f"e-{job}"
        self.say(ms + 6, "wal", "event", receiver, event=event, source="drill", key=key)
        self.say(ms + 6, "wal", "job", receiver, job=job, kind="drill.call", key=key, event=event,
                 run_at=DB_START + int(ms * 1000), queue="default", priority=0, requeued_from=None)  # fmt: skip
        answer = {"outcome": "accepted", "status": 202, "event": event, "duplicate": False}
        self.say(ms + 9, "driver", "delivery", key=key, copy=1, **{"try": 1}, jobs=1,
                 began=START + int(ms * MS), **(answer | fields))  # fmt: skip
        return job

    def claim(self, ms, job, worker, attempt=1):
        self.say(ms, "wal", "claim", worker, job=job, kind="drill.call", attempt=attempt,
                 attempts_max=3, fence=attempt, worker=worker,
                 run_at=DB_START + int(ms * 1000) - 4000, lease_until=self.until(ms))  # fmt: skip
        self.say(ms + 4, "process", "drill.started", worker, job=job, attempt=attempt)

    def until(self, ms):
        return DB_START + int((ms + LEASE) * 1000)

    def renew(self, ms, job, worker, attempt=1):
        self.say(ms, "wal", "renew", worker, job=job, fence=attempt, lease_until=self.until(ms))

    def call(self, ms, job, worker, lasts=30, attempt=1, status=200, how="whole"):
        call = self.number("call")
        self.say(ms, "upstream", "request", worker, call=call, job=job, attempt=attempt,
                 key=f"job-{job}", body="9f3c")  # fmt: skip
        if lasts is not None:
            self.say(ms + lasts, "upstream", "response", call=call, job=job, status=status,
                     rule=0, how=how)  # fmt: skip

    def end(self, ms, job, p, e="succeeded", attempt=1, **fields):
        if e != "lease-lost":
            how = "done" if e == "succeeded" else "raised"
            self.say(ms - 3, "process", "drill.ended", p, job=job, attempt=attempt, how=how)
            self.say(ms + 2, "process", "attempt.ended", p, job=job, outcome=e)
        self.say(ms, "wal", e, p, job=job, kind="drill.call", attempt=attempt, fence=attempt,
                 **fields)  # fmt: skip

    def history(self):
        return History(entries=in_order(self.entries), terms=TERMS)


def held(name="work.all-settle", promise="every job comes to an end"):
    return Finding(name, promise, 4, ())


def takeover():
    """worker-1 is killed with two jobs in hand; worker-2 takes them over."""
    tape = Tape()
    tape.start("receiver-1", "receiver-2", "worker-1", "worker-2")
    for n in range(6):
        tape.deliver(300 + 45 * n, f"receiver-{n % 2 + 1}")
    for job, worker in ((1, "worker-1"), (2, "worker-2"), (3, "worker-1"), (4, "worker-2")):
        ms = 320 + 45 * job
        tape.claim(ms, job, worker)
        tape.call(ms + 12, job, worker, lasts=None if worker == "worker-1" else 240)
    for job in (2, 4):
        tape.end(590 + 45 * job, job, "worker-2")
    tape.say(600, "fault", "fired", step="kill", do="signal", sig="KILL", to="worker-1", hits=1,
             victim_live_leases=2)  # fmt: skip
    tape.say(602, "process", "exited", "worker-1", code=-9)
    tape.say(900, "process", "started", "worker-1#2", pid=900, command="reliq worker")
    tape.say(1_040, "process", "ready", "worker-1#2")
    for job in (5, 6):
        tape.claim(700 + 30 * job, job, "worker-2")
        tape.call(715 + 30 * job, job, "worker-2", lasts=60, status=502)
        tape.end(800 + 30 * job, job, "worker-2", "failed", ended="raised", error="502 Bad Gateway",
                 run_at=DB_START + 1_200_000)  # fmt: skip
        tape.claim(1_200 + 30 * job, job, "worker-1#2", attempt=2)
        tape.call(1_215 + 30 * job, job, "worker-1#2", attempt=2)
        tape.end(1_260 + 30 * job, job, "worker-1#2", attempt=2)
    for job in (1, 3):
        lost = 1_345 + 45 * job
        tape.end(lost, job, "worker-2", "lease-lost", worker="worker-1", ended="lost",
                 run_at=DB_START + lost * 1000)  # fmt: skip
        tape.claim(lost + 40, job, "worker-2", attempt=2)
        tape.call(lost + 55, job, "worker-2", attempt=2, lasts=200)
        tape.end(lost + 270, job, "worker-2", attempt=2)
    for ms in range(200, 1_900, 100):
        tape.say(ms, "wal", "statement", "worker-2", table="jobs", op="update", rows=0)
    tape.say(1_500, "canary", "late", by_s=0.004)
    return tape.history()


def zombie():
    """worker-1 is frozen past its lease, wakes, and its late success stands."""
    tape = Tape()
    tape.start("receiver-1", "worker-1", "worker-2")
    for n in range(5):
        tape.deliver(260 + 30 * n)
    tape.deliver(2_700, outcome="unknown", status=None, event=None)
    tape.deliver(2_900, outcome="refused", status=503, event=None)
    for job in (1, 2):
        tape.claim(330 + 30 * job, job, "worker-1")
        tape.renew(560 + 3 * job, job, "worker-1")
        tape.call(350 + 30 * job, job, "worker-1", lasts=500)
    tape.say(650, "fault", "fired", step="freeze", do="signal", sig="STOP", to="worker-1", hits=1,
             victim_live_leases=2)  # fmt: skip
    for job in (3, 4, 5):
        tape.claim(400 + 30 * job, job, "worker-2")
        tape.call(420 + 30 * job, job, "worker-2", lasts=90)
        tape.end(530 + 30 * job, job, "worker-2")
    for job in (1, 2):
        tape.end(1_640 + 30 * job, job, "worker-2", "lease-lost", worker="worker-1", ended="lost")
        tape.claim(1_700 + 30 * job, job, "worker-2", attempt=2)
        tape.call(1_720 + 30 * job, job, "worker-2", attempt=2, lasts=900)
    tape.say(2_250, "fault", "healed", step="freeze", do="signal", to="worker-1")
    tape.say(2_262, "wal", "succeeded", "worker-1", job=1, kind="drill.call", attempt=2, fence=2)
    for job in (1, 2):
        tape.say(2_258 + job, "process", "drill.ended", "worker-1", job=job, attempt=1, how="done")
    tape.say(2_270, "process", "lease.lost", "worker-1", job=2)
    tape.end(2_700, 2, "worker-2", attempt=2)
    tape.say(2_710, "process", "drill.ended", "worker-2", job=1, attempt=2, how="cancelled")
    history = tape.history()
    lost = next(x for x in history.of("wal", "lease-lost") if x.a["job"] == 1)
    done = next(x for x in history.of("wal", "succeeded") if x.a["job"] == 1)
    claim = next(x for x in history.of("wal", "claim") if x.a["attempt"] == 2)
    text = "job 1: attempt 1 lost its lease, and the job succeeded before attempt 2 was answered"
    violation = Violation(text, (lost, claim, done))
    finding = Finding(
        "work.fenced", "an attempt whose lease was lost changes nothing", 2, (violation,)
    )
    return history, [held(), finding]


def great():
    """Three workers, three hundred jobs, three thousand entries."""
    tape, dice = Tape(), random.Random(7)
    workers = ["worker-1", "worker-2", "worker-3"]
    tape.start("receiver-1", *workers)
    for n in range(300):
        ms, worker = 300 + n * 31 + dice.random() * 20, workers[n % 3]
        job = tape.deliver(ms)
        tape.claim(ms + 20, job, worker)
        status = 200 if dice.random() < 0.9 else 502
        tape.call(ms + 30, job, worker, lasts=40 + dice.random() * 120, status=status)
        tape.end(ms + 220, job, worker, "succeeded" if status == 200 else "failed")
    return tape.history()


NOTHING = History(entries=(), terms=TERMS)
VIOLATED = zombie()
PAGES = {
    "takeover": timeline("A worker is killed", ["pass: worker-killed (seed 7, 2.1 s)", "  held work.all-settle: judged 6"], takeover(), [held()]),
    "zombie": timeline("A worker is frozen for longer than its lease", ["violated: worker-frozen-past-its-lease (seed 404, 3.0 s)", "  BROKEN work.fenced: judged 2"], *VIOLATED),
    "nothing": timeline("Nothing was seen", ["void: nothing (seed 1, 0.1 s)"], NOTHING, []),
    "great": timeline("Three hundred jobs", ["pass: great (seed 1, 9.9 s)"], great(), [held()]),
}  # fmt: skip


def tree(page):
    return ET.fromstring(page)  # noqa: S314 - our own


def marks(page):
    plots = [x for x in tree(page).iter(f"{SVG}svg") if x.get("class") == "plot"]
    return [x for x in plots[-1].iter() if x.tag in {f"{SVG}rect", f"{SVG}use"}]


def told(page):
    return [x.findtext(f"{SVG}title") or "" for x in marks(page)]


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
class TestEveryPage:
    def test_is_xml_and_html(self, page):
        seen = []

        class Reader(HTMLParser):
            def handle_starttag(self, tag, attrs):
                seen.append(tag)

        Reader().feed(page)

        assert page.startswith("<!DOCTYPE html>")
        assert tree(page).tag == f"{HTML}html"
        assert {"style", "script", "svg", "title"} <= set(seen)

    def test_fetches_nothing(self, page):
        bare = re.sub(r'xmlns="http://www\.w3\.org/(1999/xhtml|2000/svg)"', "", page)

        assert not re.search(r"https?:|src=|@import|url\((?!#)|href=\"(?!#)", bare)

    def test_has_every_lane(self, page):
        lanes = [x.get("data-lane") for x in tree(page).iter() if x.get("data-lane")]

        assert set(lanes) >= GROUPS
        assert lanes.index("faults") < lanes.index("senders") < lanes.index("receivers")
        assert lanes.index("receivers") < lanes.index("commits") < lanes.index("workers")
        assert lanes.index("workers") < lanes.index("upstream")

    def test_is_small(self, page):
        assert len(page.encode()) <= 300_000


def test_names_of_processes_are_lanes_and_their_incarnations_are_not():
    names = [x.text for x in tree(PAGES["takeover"]).iter(f"{SVG}text") if x.get("class") == "name"]

    assert [name for name in names if "-" in name] == [
        "receiver-1",
        "receiver-2",
        "worker-1",
        "worker-2",
    ]


def test_a_killed_process_and_its_next_incarnation_share_a_lane():
    page = tree(PAGES["takeover"])
    words = [x.text for x in page.iter(f"{SVG}text") if x.get("class") == "word"]
    shapes = [x.get("href") for x in marks(PAGES["takeover"])]

    assert words == ["kill: KILL → worker-1", "signal 9", "#2"]
    assert shapes.count("#exit") == 1
    assert shapes.count("#start") == 5


def test_a_job_can_be_followed_from_its_delivery_to_its_last_call():
    own = [x for x in marks(PAGES["takeover"]) if "1" in x.get("data-j", "").split()]

    parts = [(x.get("data-p"), x.get("data-a")) for x in own if x.get("data-p")]

    assert sorted(parts, key=str) == [
        ("call", "1"), ("call", "2"), ("delivery", None), ("end", "1"), ("job", None),
        ("lease", "1"), ("lease", "2"),
    ]  # fmt: skip


def test_every_entry_can_be_pointed_at_but_statements_that_changed_nothing():
    history = takeover()
    shown = {
        int(i)
        for title in told(PAGES["takeover"])
        for i in re.findall(r"^#(\d+) ", title, re.MULTILINE)
    }

    assert shown == {x.i for x in history.entries if x.e != "statement"}


@pytest.mark.parametrize("seed", range(20))
def test_a_history_with_holes_is_drawn_too(seed):
    dice = random.Random(seed)
    whole = VIOLATED[0].entries if seed % 2 else takeover().entries
    left = [x for x in whole if dice.random() < 0.6]
    page = timeline("holes", [], History(entries=left, terms=TERMS), [])
    shown = {int(i) for title in told(page) for i in re.findall(r"^#(\d+) ", title, re.MULTILINE)}

    assert shown == {x.i for x in left if x.e != "statement"}


def test_every_witness_is_painted_with_its_number_and_in_words():
    _, findings = VIOLATED
    witnesses = sorted(findings[1].violations[0].witnesses, key=lambda entry: entry.i)
    page = PAGES["zombie"]

    for number, witness in enumerate(witnesses, 1):
        painted = [x for x in marks(page) if f"{number}" in x.get("data-w", "").split()]
        assert any(f"#{witness.i} " in (x.findtext(f"{SVG}title") or "") for x in painted)
        assert f">{number}</button> #{witness.i} " in page
    assert findings[1].promise in page
    assert findings[1].violations[0].text in page


def test_a_witness_that_no_lane_would_show_is_painted_too():
    tape = Tape()
    tape.say(0, "wal", "statement", "worker-1", table="jobs", op="update", rows=0)
    tape.say(5, "canary", "late", by_s=1.0)
    history = tape.history()
    finding = Finding(
        "never: silence", "must not happen", 1, (Violation("seen", tuple(history.entries)),)
    )

    page = timeline("t", [], history, [finding])

    assert {x.get("data-w") for x in marks(page)} >= {"1", "2"}


def test_what_others_wrote_is_text_and_never_markup():
    tape = Tape()
    tape.start("worker-1", EVIL)
    tape.say(100, "driver", "delivery", key=EVIL, outcome=EVIL)
    tape.say(150, "fault", "fired", step=EVIL, sig="KILL", to=EVIL, hits=1)
    tape.claim(200, 1, "worker-1")
    tape.end(300, 1, "worker-1", "failed", error=EVIL)
    tape.say(310, "wal", EVIL, EVIL, error=EVIL)
    history = tape.history()
    finding = Finding(EVIL, EVIL, 1, (Violation(EVIL, (history.entries[0],)),))

    page = timeline(EVIL, [EVIL, EVIL], history, [finding])

    root = tree(page)
    assert "<script>alert" not in page
    assert len(list(root.iter(f"{HTML}script"))) == 1
    assert not [x for x in root.iter() if "onload" in x.attrib]
    assert any("error=<script>alert(1)</script>" in title for title in told(page))


def test_a_lease_is_told_by_its_end_and_by_its_expiry():
    titles = told(PAGES["zombie"])

    assert any(x.startswith("lease of job 1, attempt 1: lease-lost") for x in titles)
    assert any(x.startswith("job 1: the lease had run out at +1563.0 ms") for x in titles)
    assert any(x.startswith("handler of job 1, attempt 2: cancelled") for x in titles)


def test_many_ticks_become_bands_that_say_how_many_they_are():
    heads = [title.split("\n")[0] for title in told(PAGES["great"])]
    bands = [int(n) for head in heads for n in re.findall(r"^(\d+) x succeeded", head)]
    single = sum(
        title.startswith("#") and " wal succeeded " in title for title in told(PAGES["great"])
    )

    assert sum(bands) + single == len(great().of("wal", "succeeded"))
    assert len(marks(PAGES["great"])) < 2_000


def test_a_page_is_the_same_each_time():
    assert timeline("t", ["a"], takeover(), []) == timeline("t", ["a"], takeover(), [])
