"""Where asyncpg's errors become ours, and nowhere else."""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from reliq.errors import RequestRefused, SchemaMismatch, StoreUnavailable

_SCHEMA = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
)

_AWAY = (
    OSError,  # refused, reset, unreachable; and TimeoutError, which is one
    asyncpg.InternalClientError,  # the server's farewell came, the end of its connection not yet
    asyncpg.InterfaceError,  # "connection is closed": no PostgresError
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutting down, starting up, terminated, cancelled
    asyncpg.InsufficientResourcesError,  # too many connections, disk full
    asyncpg.TransactionRollbackError,  # deadlock, serialization: the same call may succeed
    asyncpg.ObjectNotInPrerequisiteStateError,  # lock not available
    asyncpg.ReadOnlySQLTransactionError,  # a standby, or a primary that was demoted
    asyncpg.InternalServerError,
    asyncpg.PostgresSystemError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,  # the database is being made
)


@contextmanager
def translated() -> Iterator[None]:
    """
    Translate the errors of the calls in the block.

    Raises:
        StoreUnavailable: the database is away, or will not now; a later call may succeed.
        RequestRefused: a value is out of range for its column.
        SchemaMismatch: a table, column or function is missing.

    """
    try:
        yield
    except _SCHEMA as error:
        raise SchemaMismatch(f"{error}: run `reliq migrate`") from error
    except asyncpg.DataError as error:  # its text quotes the value
        raise RequestRefused(f"the database refuses a value ({type(error).__name__})") from error
    except _AWAY as error:
        text = str(error) or type(error).__name__
        raise StoreUnavailable(f"the database is not available ({text})") from error
