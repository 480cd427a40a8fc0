"""Enqueue through Django, in the `transaction.atomic` block that is open, if one is."""

from django.db import DEFAULT_DB_ALIAS, connections  # type: ignore[import-untyped]

from reliq.domain.job import Enqueued, NewJob
from reliq.domain.sealed import Sealer
from reliq.postgres.enqueue import enqueue_answer, enqueue_statement


def enqueue(
    job: NewJob, *, using: str = DEFAULT_DB_ALIAS, sealing: Sealer | None = None
) -> Enqueued:
    """
    Put one job into the queue, through the database that Django calls `using`.

    Raises:
        ValueError: the tables can never take the job; nothing was sent.

    """
    statement, parameters = enqueue_statement(job, "pyformat", sealing=sealing)
    with connections[using].cursor() as cursor:
        cursor.execute(statement, parameters)
        return enqueue_answer(cursor.fetchone())
