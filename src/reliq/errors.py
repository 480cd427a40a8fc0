"""
Every exception of reliq, in one tree. It answers one question: whose move is it now.

```
ReliqError
├── ConfigInvalid          the operator's: change a setting; exit code 2
├── StoreError             the database's
│   ├── StoreUnavailable       the same call may succeed later
│   ├── SchemaMismatch         run `reliq migrate`, or deploy the version that fits
│   └── RequestRefused         what was asked cannot be done to this job or event
├── PermanentError         the job's: repeating cannot help; it goes to the dead letters
├── TemporaryError         the upstream's: try again, not before `after`
├── LeaseLost              another worker has the job; nothing of this attempt was written
├── HandlerDied            the handler's: its own process ended without an answer; try again
├── EffectTaken            another job's: it is at the same effect; this one comes again
├── KeyUnknown             the operator's: a payload's field was sealed with a key we do not have
├── ServerFailed           the machine's: a Postgres of ours did not start, stop or obey
└── HarnessError           the rig's, not the system's under test
    └── ScenarioInvalid        with file and line
```

Expected endings are values, not exceptions: an outcome, a settlement, a duplicate, a verdict.
"""

from collections.abc import Sequence
from datetime import timedelta


class ReliqError(Exception):
    """The root of all that reliq raises on purpose."""


class ConfigInvalid(ReliqError):
    """
    One or more settings are missing or wrong; every one of them is named at once.

    `problems` holds one sentence each: what, with which value, what to do.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class StoreError(ReliqError):
    """Something between us and the tables."""


class StoreUnavailable(StoreError):
    """The database did not answer, or not in time; what was asked may or may not have happened."""


class SchemaMismatch(StoreError):
    """The tables are not those this version of reliq works with."""


class RequestRefused(StoreError):
    """A person or a program asked for what this job or event does not allow."""


class PermanentError(ReliqError):
    """
    Raised by a handler when repeating cannot help: the job goes to the dead letters at once.

    `status` is the upstream's HTTP status, where there was one.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = _status(status)


class TemporaryError(ReliqError):
    """
    Raised by a handler when a later try may succeed; any other exception means the same.

    `after` is the upstream's own wish (Retry-After): a floor under the pause.
    """

    def __init__(
        self, message: str, *, status: int | None = None, after: timedelta | None = None
    ) -> None:
        super().__init__(message)
        self.status = _status(status)
        if not isinstance(after, timedelta | None):
            raise TypeError(f"after is a timedelta, not {after!r}")
        self.after = after


class LeaseLost(ReliqError):
    """The job is no longer ours: its transaction was rolled back and its settle refused."""


class HandlerDied(ReliqError):
    """The process of an isolated handler was killed or ended by itself, and nobody knows more."""


class EffectTaken(ReliqError):
    """
    Another job is at the effect that `job.once` was asked for.

    A handler lets it pass: its job comes again after the first pause of its policy, at no
    attempt's cost, and finds the effect done, or its holder at an end.
    """


class KeyUnknown(ReliqError):
    """A sealed value does not open: its key, `key_id`, is not among ours, or another of that id is."""

    def __init__(self, key_id: str, message: str) -> None:
        super().__init__(message)
        self.key_id = key_id


class ServerFailed(ReliqError):
    """A Postgres that we run ourselves could not do what it was told; its last words are quoted."""


class HarnessError(ReliqError):
    """The rig failed, so the run proves nothing about the system under test."""


class ScenarioInvalid(HarnessError):
    """A scenario file cannot be used; the message holds file, line and what to write instead."""


def _status(status: object) -> int | None:
    """Refuse what the attempts table could not hold: the failure must not be lost over it."""
    if status is None or (isinstance(status, int) and abs(status) < 2**31):
        return status
    raise TypeError(f"status is an HTTP status, not {status!r}")
