"""
A family: a job, the children it makes, and the one job that is made when they have ended.

A child has ended when it has succeeded, is dead or was cancelled. What a dead child does to its
family is `on_failure`, one of two:

| policy     | a dead child                                                                   |
|------------|--------------------------------------------------------------------------------|
| `hold`     | holds the final job, until a person has it made anew and the new job succeeds  |
| `continue` | has ended like any other; the final job is told how many are dead              |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from reliq.domain.job import NewJob, check_job
from reliq.domain.sealed import Sealer

OnFailure = Literal["hold", "continue"]

CHILDREN_MAX: Final = 250_000
"""Children of one job: made in one transaction, and all looked at by one statement at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The wish to have children, and `then` one job more."""

    children: Sequence[NewJob]
    then: NewJob
    on_failure: OnFailure = "hold"


def check_family(family: Family, sealing: Sealer | None = None) -> str:
    """
    Return the payload of the final job as it is stored, if the family can be had.

    The children themselves are checked when they are written.

    Raises:
        ValueError: it cannot; the message names what is wrong and what to do.

    """
    if family.on_failure not in get_args(OnFailure):
        raise ValueError(f"on_failure is 'hold' or 'continue', not {family.on_failure!r}")
    if not isinstance(family.children, Sequence):
        raise ValueError(  # noqa: TRY004 - one error for all that is wrong with a family
            f"children are a list of NewJob, not a {type(family.children).__name__}: "
            "write list(…) around it"
        )
    if len(family.children) > CHILDREN_MAX:
        raise ValueError(
            f"a job has at most {CHILDREN_MAX} children, not {len(family.children)}: "
            "let children have children"
        )
    payload = check_job(family.then, sealing)
    for what, job in (("the final job", family.then), *(("a child", c) for c in family.children)):
        if getattr(job, "key", None) is not None:
            raise ValueError(
                f"{what} takes no key, not {job.key!r}: the family is made once, and so is each job"
            )
        if getattr(job, "group_key", None) is not None:
            raise ValueError(
                f"{what} takes no group_key, not {job.group_key!r}: children run at once"
            )
    return payload
