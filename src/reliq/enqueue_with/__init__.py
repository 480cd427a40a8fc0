"""
Enqueue through a driver of the caller's, in the transaction that stands on his connection.

One module a driver, the only ones that import it: `psycopg`, `sqlalchemy`, `django`. Each refuses
a bad job with ValueError before anything is sent; errors of the database are the driver's own.
`sealing` (a `reliq.Sealing`) encrypts the payload's secret fields.
For any other driver: send `enqueue_statement`, and give its row to `enqueue_answer`.
"""

from reliq.postgres.enqueue import enqueue_answer, enqueue_statement

__all__ = ["enqueue_answer", "enqueue_statement"]
