"""
How long to wait after an attempt that failed, and when to stop trying.

`delay(n) = min(cap / (1 + j), base · 2^(n-1)) · uniform(1 - j, 1 + j)`, n the attempt that
failed. Dividing the cap before spreading keeps every delay at or below the cap *and* spread
out, at the cap too. With the defaults the seven pauses between eight attempts last about
21 minutes in all (10 + 20 + … + 640 s = 1,270 s). Or the pauses are written down, in a table.
"""

from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from math import log2
from typing import Final

from reliq.domain.fields import check_duration, check_field, check_share, check_whole

ATTEMPTS_MAX: Final = 2**31 - 1
"""What the column holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """
    The pauses of one kind of job.

    `jitter` is the share by which a pause is spread to both sides, below 1.
    `retry_after_max` bounds what an upstream may ask for; beyond it the job is dead.
    """

    base: timedelta = timedelta(seconds=10)
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.2
    attempts_max: int = 8
    retry_after_max: timedelta = timedelta(hours=24)

    def __post_init__(self) -> None:
        for name in ("base", "cap", "retry_after_max"):
            check_duration(f"RetryPolicy: {name}", getattr(self, name))
        if self.cap < self.base:
            raise ValueError(f"RetryPolicy: base={self.base} is above cap={self.cap}")
        check_share("RetryPolicy: jitter", self.jitter)
        check_whole("RetryPolicy: attempts_max", self.attempts_max, 1, ATTEMPTS_MAX)

    def delay(self, attempt: int, roll: float) -> timedelta:
        """
        Return the pause after attempt `attempt` (from 1) failed; `roll` is a fair die in [0, 1).

        The comparison is one of exponents, because 2.0 ** 1024 is no float any more.
        """
        ceiling = self.cap / (1 + self.jitter)
        growth, room = attempt - 1, log2(self.cap / self.base) - log2(1 + self.jitter)
        plain = ceiling if growth >= room else self.base * 2**growth
        spread = min(plain, ceiling) * (1 - self.jitter + 2 * self.jitter * roll)
        return min(spread, self.cap)  # whole microseconds round up as well

    def total(self) -> timedelta:
        """All pauses of a job that fails to the end, without jitter."""
        pauses = (self.delay(n, 0.5) for n in range(1, self.attempts_max))
        return sum(pauses, timedelta(0))


@dataclass(frozen=True, slots=True)
class RetryTable:
    """
    The pauses of one kind of job, written down: one more attempt than there are pauses.

    `jitter` and `retry_after_max` as of `RetryPolicy`.
    """

    pauses: tuple[timedelta, ...]
    _: KW_ONLY
    jitter: float = 0.1
    retry_after_max: timedelta = timedelta(hours=24)

    def __post_init__(self) -> None:
        pauses: object = self.pauses
        is_table = isinstance(pauses, tuple | list) and len(pauses) > 0
        check_field("RetryTable: pauses", pauses, "a tuple of one or more", is_right=is_table)
        for pause in self.pauses:
            check_duration("RetryTable: a pause", pause)
        check_share("RetryTable: jitter", self.jitter)
        check_duration("RetryTable: retry_after_max", self.retry_after_max)

    @property
    def attempts_max(self) -> int:
        """The first attempt, and one after each pause."""
        return len(self.pauses) + 1

    def delay(self, attempt: int, roll: float) -> timedelta:
        """Return the pause after attempt `attempt` (from 1) failed; `roll` is a die in [0, 1)."""
        plain = self.pauses[min(attempt, len(self.pauses)) - 1]
        return plain * (1 - self.jitter + 2 * self.jitter * roll)


Retry = RetryPolicy | RetryTable
