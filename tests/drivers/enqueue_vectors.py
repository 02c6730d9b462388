"""Enqueues the vectors of `enqueue_vectors.json` with the client for Python.

Usage: enqueue_vectors.py DRIVER VECTORS DATABASE, where DRIVER is sqlite3, psycopg or sqlalchemy
Prints a JSON list: for each job, whether it was accepted.
"""

import json
import sqlite3
import sys
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients/python/src"))

from windlass_client import EnqueueError, RawJson, enqueue  # noqa: E402


def long(value):
    """Returns a value whose text is written as `{"repeat": text, "times": n}` or `{"concat": [..]}`."""
    if not isinstance(value, dict):
        return value
    if "concat" in value:
        return "".join(long(part) for part in value["concat"])
    return value["repeat"] * value["times"]


def transactions(driver, database):
    """Returns a context manager of one transaction, whose value is what the client takes."""
    if driver == "sqlite3":
        conn = sqlite3.connect(database, timeout=10)

        @contextmanager
        def transaction():
            with conn:
                yield conn

    elif driver == "psycopg":
        import psycopg

        conn = psycopg.connect(database)

        @contextmanager
        def transaction():
            with conn.transaction():
                yield conn

    else:
        import sqlalchemy
        import sqlalchemy.orm

        is_postgres = database.startswith("postgres")
        url = database.replace("postgres", "postgresql+psycopg", 1) if is_postgres else f"sqlite:///{database}"
        engine = sqlalchemy.create_engine(url)
        # A connection on one database, a session on the other.
        transaction = engine.begin if is_postgres else sqlalchemy.orm.sessionmaker(engine).begin
    return transaction


def accepts(transaction, job):
    job = {column: long(value) for column, value in job.items()}
    for column in ("arguments", "tags", "meta", "rates"):
        if isinstance(job.get(column), str):
            job[column] = RawJson(job[column])
    class_name, arguments = job.pop("class", None), job.pop("arguments", None)
    try:
        with transaction() as conn:
            enqueue(conn, class_name, arguments, **job)
    except EnqueueError:
        return False
    return True


def main():
    driver, vectors, database = sys.argv[1:]
    with open(vectors, encoding="utf-8") as file:
        jobs = [job for vector in json.load(file) for job in vector["jobs"]]
    transaction = transactions(driver, database)
    print(json.dumps([accepts(transaction, job) for job in jobs]))


main()
