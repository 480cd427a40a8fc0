"""
How the jobs of a kind are tried, and where they wait: one value, and a few that are known by name.

```python
Handler(push_order, policy=WEBHOOK)
Handler(push_order, policy=replace(WEBHOOK, queue="crm"))
```
"""

from dataclasses import dataclass
from datetime import timedelta
from types import NoneType
from typing import Final

from reliq.domain.fields import check_duration, check_type, check_whole
from reliq.domain.job import PRIORITY_LAST, check_name
from reliq.domain.retry import Retry, RetryPolicy, RetryTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """
    The policy of a kind; None is what the settings say, or what every job has.

    `retry` bounds the attempts and says when the next one comes. `queue` and `priority` are
    those of jobs for which nobody chose others, where the App is known (`App.checked`).
    """

    retry: Retry | None = None
    time_limit: timedelta | None = None
    queue: str | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        check_type("Policy: retry", self.retry, RetryPolicy, RetryTable, NoneType)
        if self.time_limit is not None:
            check_duration("Policy: time_limit", self.time_limit)
        if self.queue is not None:
            check_name("Policy: queue", self.queue)
        if self.priority is not None:
            check_whole("Policy: priority", self.priority, 0, PRIORITY_LAST)


DEFAULT: Final = Policy()
"""What the settings say."""

MAIL: Final = Policy(
    retry=RetryPolicy(
        base=timedelta(seconds=5), cap=timedelta(minutes=5), attempts_max=6,
    ),
    time_limit=timedelta(seconds=30),
)  # fmt: skip
"""Somebody waits for it, and soon no longer: five retries within three minutes."""

WEBHOOK: Final = Policy(
    retry=RetryTable(
        (
            timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2),
        ),
    ),
    time_limit=timedelta(seconds=30),
)  # fmt: skip
"""Somebody else's service, which may be away for hours: 1, 5, 30 minutes, 2 hours, 10 % up or down."""

REPORT: Final = Policy(
    retry=RetryPolicy(base=timedelta(minutes=5), attempts_max=3),
    time_limit=timedelta(hours=1),
    priority=7,
)
"""Long, in no hurry, and seldom mended by another try."""

URGENT: Final = Policy(
    retry=RetryPolicy(base=timedelta(seconds=2), cap=timedelta(minutes=1)),
    time_limit=timedelta(minutes=1),
    priority=1,
)
"""Before the others, and soon again."""
