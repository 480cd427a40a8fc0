"""
What becomes of a delivery, without HTTP: verified, parsed and stored, or refused, as a value.

| step   | a delivery that fails it                                                     |
|--------|------------------------------------------------------------------------------|
| verify | is refused; the sender learns nothing, the reason is for the log             |
| parse  | is stored all the same, without jobs, and can be replayed once the code is mended |
| store  | is not ours yet: the sender still has it and will come again                 |

Only what a sender can repair is refused. What we cannot read is our own trouble: refused, it
would come again and again, and be gone once the sender gives up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from anyio import to_thread

from reliq.app import HEADERS_KEPT, App, Source
from reliq.domain.event import Delivery, Duplicate, Stored
from reliq.domain.job import NewJob, check_job
from reliq.domain.signature import Refused, check_secrets, verify
from reliq.domain.text import error_text
from reliq.errors import ConfigInvalid, StoreError
from reliq.ports import Inbox, NewEvent

THREAD_BYTES: Final = 256 * 1024
"""A larger body is hashed and parsed in a thread: 25 MB would hold everybody up for 0.2 s."""

HEADERS_NEVER: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
"""Not stored whatever a source asks for; nor is the header with the source's own proof."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a source's code made of a delivery; `error` says why it made nothing."""

    dedup_key: str | None
    jobs: Sequence[NewJob]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Away:
    """Not stored, for the store is away: the sender should come again."""


Answer = Stored | Duplicate | Refused | Away


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """
    The way in: `accept` takes a delivery of a known source to its answer.

    `bell` is rung after a commit with jobs; it must return at once and not raise.
    """

    sources: Mapping[str, Source]
    secrets: Mapping[str, Sequence[bytes]]
    inbox: Inbox
    body_max: int
    bell: Callable[[], None] = lambda: None
    checked: Callable[[NewJob], NewJob] = lambda job: job

    @classmethod
    def of(
        cls,
        app: App,
        *,
        secrets: Mapping[str, Sequence[bytes]],
        inbox: Inbox,
        body_max: int,
        bell: Callable[[], None] = lambda: None,
    ) -> "Intake":
        """
        Open the way in for the sources of an App.

        Raises:
            ConfigInvalid: a source has no secret that can guard it; all such are named.

        """
        problems = []
        for name in app.sources:
            try:
                check_secrets(secrets.get(name, ()))
            except ValueError as error:
                problems.append(f"source {name!r}: {error}")
        if problems:
            raise ConfigInvalid(problems)
        return cls(
            sources=app.sources, secrets=secrets, inbox=inbox, body_max=body_max, bell=bell,
            checked=app.checked,
        )  # fmt: skip

    def limit(self, source: str) -> int | None:
        """Return how many bytes a body may have; None where there is no such source."""
        if (found := self.sources.get(source)) is None:
            return None
        return self.body_max if found.body_max is None else found.body_max

    async def accept(self, delivery: Delivery) -> Answer:
        """Take a delivery of a known source, whole, to its answer; log what came of it."""
        about = {"source": delivery.source, "bytes": len(delivery.body)}
        if len(delivery.body) > THREAD_BYTES:
            event = await to_thread.run_sync(self.read, delivery)
        else:
            event = self.read(delivery)
        if isinstance(event, Refused):
            log.warning("delivery.refused", **about, status=401, reason=event.reason)
            return event
        try:
            answer = await self.inbox.store_event(event)
        except StoreError as error:
            log.warning("delivery.not_stored", **about, error=error_text(error))
            return Away()
        if isinstance(answer, Duplicate):
            log.info("delivery.duplicate", **about, event_id=answer.event_id)
            return answer
        if event.parse_error is not None:
            # The type alone: a text may quote the body. `reliq show` has it whole.
            what, _, _ = event.parse_error.partition(":")
            log.warning("delivery.unreadable", **about, event_id=answer.event_id, error=what)
        else:
            log.info("delivery.accepted", **about, event_id=answer.event_id, jobs=answer.jobs)
        if answer.jobs:
            self.bell()
        return answer

    def read(self, delivery: Delivery) -> NewEvent | Refused:
        """Verify and parse: all that needs no store. Pure but for the source's own code."""
        source = self.sources[delivery.source]
        verdict = verify(source.signature, self.secrets[delivery.source], delivery)
        if isinstance(verdict, Refused):
            return verdict
        parsed = parse(source, delivery, self.checked)
        return NewEvent(
            source=delivery.source,
            dedup_key=parsed.dedup_key,
            headers=kept(source, delivery),
            body=delivery.body,
            parse_error=parsed.error,
            jobs=parsed.jobs,
        )


def parse(
    source: Source, delivery: Delivery, checked: Callable[[NewJob], NewJob] = lambda job: job
) -> Parsed:
    """
    Ask a source's code for dedup key and jobs; whatever it raises becomes `error`.

    `checked` is the App's: a job that does not fit its kind's model is an error, too.

    A key is kept when only the jobs fail, so that the unreadable event is still stored once.
    An empty key is none: else all deliveries without an id would be one event.
    """
    key = None
    try:
        key = _key(source.dedup_key(delivery))
        jobs = list(source.route(delivery))
        for job in jobs:
            check_job(job)
        return Parsed(key, [checked(job) for job in jobs])
    except Exception as error:  # noqa: BLE001 - any bug of a source must not lose the event
        return Parsed(key, (), error_text(error))


def kept(source: Source, delivery: Delivery) -> dict[str, str]:
    """
    Choose the headers to store, by lower-case name; one that occurs twice is joined with commas.

    A secret must not reach a table, so the header of the proof is left out, and those that
    carry credentials by their nature, even where a source lists them.
    """
    wanted = HEADERS_KEPT | {name.lower() for name in source.headers_kept}
    wanted -= HEADERS_NEVER | {source.signature.header.lower()}
    found = {name: delivery.values(name) for name in sorted(wanted)}
    return {name: b", ".join(values).decode("latin-1") for name, values in found.items() if values}


def _key(key: object) -> str | None:
    if key is None or key == "":
        return None
    if not isinstance(key, str):
        raise TypeError(f"a dedup key is text or None, not {type(key).__name__}")
    return key
