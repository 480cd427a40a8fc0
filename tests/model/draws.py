"""What moves draw from: times, wishes, ways in which attempts end, and numbers that choose."""

from datetime import UTC, datetime, timedelta
from itertools import product

from hypothesis import strategies as st

from tests.model.rows import EPOCH, Lane, Position
from tests.model.wishes import Back, Burial, Wish

START = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
NOTHING = timedelta(0)
LEASE = timedelta(seconds=30)
KEY_TTL = timedelta(minutes=10)
ALERT_WINDOW = timedelta(hours=1)
WALK = 50_000
MOST = 1_000
ALERTS = True

WORKERS = ("w1", "w2")
LANES: tuple[Lane, ...] = (("default", 5), ("default", 0), ("slow", 5))
HEAD: Position = (EPOCH, 0)
"""Before every job."""

KINDS = (
    {"job": 8, "mail": 8, "alert": 8},
    {"job": 3, "mail": 5, "alert": 2},
    {"job": 2},
    {"mail": 3, "alert": 8},
)
"""What a worker has handlers for, each with the most attempts it allows."""

TICKS = (MOMENT, SECOND, LEASE - MOMENT, LEASE, LEASE + MOMENT, KEY_TTL, ALERT_WINDOW)

DELAYS = (NOTHING, MOMENT, SECOND, LEASE)
GROUPS = ((None, 1), (None, 1), ("g", 1), ("g", 2), ("h", 1))
ERRORS = ("it broke", "no route")
ENDED = ("failed", "again", "handed_back", "timed_out", "again", "handed_back", "cancelled")

ticks = st.sampled_from([NOTHING] * len(TICKS) + list(TICKS))
numbers = st.integers(0, 999)
workers = st.sampled_from(WORKERS)
dying = st.sampled_from((False, False, True))
"""Whether a worker dies between a settle and what follows it."""

WISHES = [
    Wish(
        kind=kind, payload={"n": n}, key=key, run_in=run_in, queue=queue, priority=priority,
        group=group, running=running,
    )
    for n, (kind, key, run_in, (queue, priority), (group, running)) in enumerate(
        product(("job", "mail"), (None, "a", "b"), DELAYS, LANES, GROUPS)
    )
]  # fmt: skip
wishes = st.sampled_from(range(len(WISHES))).map(
    lambda n: WISHES[n]
)  # else each name of it is 50 kB
backs = st.sampled_from(
    [
        Back(after=after, ended=ended, error=error, status=status)
        for after, ended, error, status in product(DELAYS, ENDED, (None, *ERRORS), (None, 502))
    ]
)
burials = st.sampled_from(
    [
        Burial(reason=reason, error=error, status=status)
        for reason, error, status in product(("gave_up", "attempts"), ERRORS, (None, 400))
    ]
)
picks = st.lists(numbers, min_size=1, max_size=5)
"""Which leases a call names; see `Player.leases_of`."""
