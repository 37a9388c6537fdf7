"""The schema's version, and the way from each older one to the newest (design, 7).

The version is SQLite's `user_version`; the `application_id` tells our files from those of other programs. Both change
in the one transaction that creates or migrates, so that of many processes that start at once one does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from engine.errors import StoreError, StoreSchemaError
from engine.store.tables import StoreTable

Migration = Callable[[Connection], None]

FORWARD: tuple[Migration, ...] = ()
"""The n-th lifts a store from version n + 1 to n + 2. Published ones are never edited; new ones go at the end."""

APPLICATION_ID = 0x61676E74
"""`agnt` in ASCII."""


def is_current(connection: Connection, location: str, *, forward: Sequence[Migration] = FORWARD) -> bool:
    """Whether the schema is the one that this program writes.

    Raises:
        StoreSchemaError: it is newer.
        StoreError: the file belongs to another program.
    """
    newest = 1 + len(forward)
    version, application_id = _read_marks(connection)
    if version == 0 and application_id == 0 and _is_empty(connection):
        return False
    if application_id != APPLICATION_ID or version == 0:
        raise StoreError(
            f"the store {location} cannot be used: it is the database of another program and was left as it is: "
            "choose another place with --data-dir PATH or AGENT_HOME"
        )
    if version > newest:
        raise StoreSchemaError(
            f"the store {location} was written by a newer version of agent (schema {version}, this one knows "
            f"{newest}): update agent, or choose another place with --data-dir PATH or AGENT_HOME"
        )
    return version == newest


def migrate(connection: Connection, location: str, *, forward: Sequence[Migration] = FORWARD) -> None:
    """Create or lift the schema, inside the caller's write transaction; another process may have done it by now."""
    if is_current(connection, location, forward=forward):
        return
    version, _ = _read_marks(connection)
    if version == 0:
        StoreTable.metadata.create_all(connection, checkfirst=False)
    else:
        for lift in forward[version - 1 :]:
            lift(connection)
    connection.exec_driver_sql(f"PRAGMA user_version = {1 + len(forward)}")
    connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def _read_marks(connection: Connection) -> tuple[int, int]:
    query = "SELECT v.user_version, a.application_id FROM pragma_user_version v, pragma_application_id a"
    version, application_id = connection.exec_driver_sql(query).one()
    return version, application_id


def _is_empty(connection: Connection) -> bool:
    return connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").first() is None
