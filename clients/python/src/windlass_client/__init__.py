"""Enqueues jobs of Windlass and emits events in the caller's own transaction, on SQLite and Postgres."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Optional, TypedDict, Union

if TYPE_CHECKING:
    import sqlite3
    import psycopg
    import sqlalchemy
    import sqlalchemy.orm
    from typing_extensions import Unpack

    Alchemy = Union[sqlalchemy.engine.Connection, sqlalchemy.orm.Session, sqlalchemy.orm.scoped_session[Any]]
    Connection = Union[sqlite3.Connection, psycopg.Connection[Any], Alchemy]

__all__ = ["EnqueueError", "Job", "Options", "RawJson", "emit", "enqueue", "enqueue_many"]

# The columns of the view windlass_enqueue_v2, and their types on Postgres.
_COLUMNS = {
    "arguments": "text",
    "queue": "text",
    "priority": "integer",
    "run_at": "timestamptz",
    "delay_seconds": "double precision",
    "unique_id": "text",
    "unique_scope": "text",
    "on_conflict": "text",
    "idempotency_key": "text",
    "concurrency_key": "text",
    "concurrency_group": "text",
    "concurrency_limit": "bigint",
    "concurrency_on_conflict": "text",
    "max_attempts": "bigint",
    "max_crashes": "bigint",
    "at_most_once": "boolean",
    "traceparent": "text",
    "tags": "text",
    "meta": "text",
    "version": "bigint",
    "timeout_seconds": "double precision",
    "backoff_seconds": "double precision",
    "backoff_cap_seconds": "double precision",
    "expires_in_seconds": "double precision",
    "not_after": "timestamptz",
    "retry_for_seconds": "double precision",
    "keep_result_seconds": "double precision",
    "tenant": "text",
    "batch_id": "bigint",
    "after_batch": "bigint",
    "runs_on": "text",
    "rates": "text",
}
# Those that are JSON.
_JSON = ("arguments", "tags", "meta", "rates")
_EXPECTED: dict[str, tuple[str, Any]] = {
    "text": ("a str", str),
    "integer": ("an int", int),
    "bigint": ("an int", int),
    "double precision": ("a number", (int, float)),
    "boolean": ("a bool", bool),
    "timestamptz": ("a time with its zone: a datetime, or a str as 2026-12-24T18:00:00Z", (datetime, str)),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)", re.ASCII)


class EnqueueError(Exception):
    """The job or event is refused, and nothing is stored. The message is the database's, or says which value is wrong."""


class RawJson(str):
    """Arguments, or a payload, that are JSON text already."""


class Options(TypedDict, total=False):
    """What may be said of a job: the columns of the view. What is absent or None has its default."""

    queue: Optional[str]
    priority: Optional[int]
    run_at: Union[datetime, str, None]
    delay_seconds: Optional[float]
    unique_id: Optional[str]
    unique_scope: Optional[str]
    on_conflict: Optional[str]
    idempotency_key: Optional[str]
    concurrency_key: Optional[str]
    concurrency_group: Optional[str]
    concurrency_limit: Optional[int]
    concurrency_on_conflict: Optional[str]
    max_attempts: Optional[int]
    max_crashes: Optional[int]
    at_most_once: Optional[bool]
    traceparent: Optional[str]
    tags: Optional[list[str]]
    meta: Optional[dict[str, Any]]
    version: Optional[int]
    timeout_seconds: Optional[float]
    backoff_seconds: Optional[float]
    backoff_cap_seconds: Optional[float]
    expires_in_seconds: Optional[float]
    not_after: Union[datetime, str, None]
    retry_for_seconds: Optional[float]
    keep_result_seconds: Optional[float]
    tenant: Optional[str]
    batch_id: Optional[int]
    after_batch: Optional[int]
    runs_on: Optional[str]
    rates: Optional[list[dict[str, Any]]]


class Job(Options, total=False):
    """A job of a list."""

    arguments: Any


def enqueue(conn: Connection, class_name: str, arguments: Any = None, **options: Unpack[Options]) -> Optional[int]:
    """Enqueues a job in the transaction of `conn`, which the caller commits.

    Returns the job's id on Postgres, None on SQLite. Raises EnqueueError if the job is refused. Other errors, of the
    connection or those after which the transaction is to be repeated, are the driver's own.
    """
    where = f"cannot enqueue `{class_name}`"
    job = _checked(where, {"arguments": arguments, **options})
    found = _call(conn, where, "windlass_enqueue_v2", {"class": class_name, **job})
    return found[0] if found else None


def enqueue_many(conn: Connection, class_name: str, jobs: Iterable[Job]) -> Optional[list[int]]:
    """Enqueues jobs of one class in the transaction of `conn`, all or none, faster than one by one.

    Returns their ids, in order, on Postgres, None on SQLite. Raises EnqueueError if one of them is refused.
    """
    texts = []
    for place, job in enumerate(jobs, 1):
        where = f"cannot enqueue `{class_name}`: job {place} of the list"
        checked = _checked(where, job)
        for column in _JSON:  # They must not end the object that they are in.
            try:
                json.loads(checked.get(column, "null"))
            except (ValueError, RecursionError) as error:
                raise EnqueueError(f"{where}: its {column} are not JSON: {error}") from error
        pairs = (f'"{name}":{value if name in _JSON else _json(value)}' for name, value in checked.items())
        texts.append("{" + ",".join(pairs) + "}")
    where = f"cannot enqueue `{class_name}`"
    return _call(conn, where, "windlass_enqueue_many_v2", {"class": class_name, "jobs": "[" + ",".join(texts) + "]"})


def emit(conn: Connection, name: str, payload: Any = None) -> None:
    """Emits an event in the transaction of `conn`: jobs that wait for it run again, with its payload.

    An event stays: with the same payload nothing changes. Raises EnqueueError if it is refused, or has another payload.
    """
    where = f"cannot emit `{name}`"
    text = _checked(where, {"arguments": payload}).get("arguments", "null")
    _call(conn, where, "windlass_emit", {"name": name, "payload": text})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _checked(where: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is set, in the form that both databases take."""

    def refuse(problem: str) -> NoReturn:
        raise EnqueueError(f"{where}: {problem}")

    if not isinstance(job, Mapping):
        refuse("it is not a mapping")
    checked: dict[str, Any] = {}
    for column, value in job.items():
        if column not in _COLUMNS:
            refuse(f"a job has no {column}")
        if value is None:
            continue
        if column in _JSON:
            try:
                checked[column] = str(value) if isinstance(value, RawJson) else _json(value)
            except (TypeError, ValueError, RecursionError) as error:
                refuse(f"its {column} are not JSON: {error}")
            continue
        expected, types = _EXPECTED[_COLUMNS[column]]
        is_time = _COLUMNS[column] == "timestamptz"
        if is_time and isinstance(value, datetime):
            value = value.isoformat()
        fits = isinstance(value, types) and isinstance(value, bool) == (types is bool)  # to Python, a bool is an int
        fits = fits and (not is_time or bool(_TIME.fullmatch(value)))
        fits = fits and (isinstance(value, str) or -(2**63) <= value < 2**63)  # NaN is not
        if not fits:
            refuse(f"its {column} must be {expected}, not {value!r}")
        # A member of an enum is its value, whatever the driver makes of enums.
        checked[column] = str.__str__(value) if isinstance(value, str) else value
    return checked


def _call(conn: Any, where: str, name: str, values: dict[str, Any]) -> Optional[list[int]]:
    """Calls the function of Postgres, or inserts into the view of SQLite, which returns nothing."""
    driver, dialect = _driver(conn)
    first = next(iter(values))
    if not isinstance(values[first], str):
        raise EnqueueError(f"{where}: its {first} must be a str")
    mark = "%({})s" if driver == "psycopg" else ":{}"
    marks = {column: mark.format(column) for column in values}
    if dialect == "postgresql":
        types = {"class": "text", "jobs": "json", "name": "text", "payload": "text", **_COLUMNS}
        given = (f"{column} => CAST({mark} AS {types[column]})" for column, mark in marks.items())
        statement = f"SELECT {name}({', '.join(given)})"
    else:
        view = "windlass_events_emit" if name == "windlass_emit" else name
        statement = f"INSERT INTO {view} ({', '.join(marks)}) VALUES ({', '.join(marks.values())})"
    try:
        if driver == "psycopg":
            psycopg = sys.modules["psycopg"]  # its own cursor: that of the connection may have other marks
            return [id for (id,) in psycopg.Cursor(conn, row_factory=psycopg.rows.tuple_row).execute(statement, values)]
        done = conn.execute(sys.modules["sqlalchemy"].text(statement) if driver == "sqlalchemy" else statement, values)
        return [row[0] for row in done] if dialect == "postgresql" else None
    except Exception as error:
        cause = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or ""
        is_said = "cannot enqueue" in str(cause) or "cannot emit" in str(cause)
        is_value = code.startswith("22") or isinstance(cause, ValueError) or type(cause).__name__ == "DataError"
        if code.startswith("40") or not (is_said or is_value or code == "42501"):
            raise
        raise EnqueueError(str(cause) if is_said else f"{where}: {cause}") from error


def _driver(conn: Any) -> tuple[str, str]:
    def comes_from(module: str, *classes: str) -> bool:
        loaded = sys.modules.get(module)
        return loaded is not None and isinstance(conn, tuple(getattr(loaded, name) for name in classes))

    if comes_from("sqlite3", "Connection"):
        return "sqlite3", "sqlite"
    if comes_from("psycopg", "Connection"):
        return "psycopg", "postgresql"
    if comes_from("sqlalchemy.orm", "Session", "scoped_session"):
        return "sqlalchemy", conn.get_bind().dialect.name
    if comes_from("sqlalchemy.engine", "Connection"):
        return "sqlalchemy", conn.dialect.name
    raise TypeError(f"a connection of sqlite3, psycopg 3 or SQLAlchemy is needed, not {type(conn).__qualname__}")
