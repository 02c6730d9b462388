"""Enqueues the vectors of `enqueue_vectors.json` into a SQLite file, with the driver of Python's standard library.

Usage: enqueue_vectors.py VECTORS DATABASE
Prints a JSON list: for each job, whether it was accepted.
"""

import json
import sqlite3
import sys


def long(value):
    """Returns a value whose text is written as `{"repeat": text, "times": n}` or `{"concat": [..]}`."""
    if not isinstance(value, dict):
        return value
    if "concat" in value:
        return "".join(long(part) for part in value["concat"])
    return value["repeat"] * value["times"]


def enqueue(connection, job):
    columns = ", ".join(job)
    values = ", ".join("?" for _ in job)
    statement = f"INSERT INTO windlass_enqueue ({columns}) VALUES ({values})"
    try:
        connection.execute(statement, [long(value) for value in job.values()])
    except sqlite3.DatabaseError as error:
        if "cannot enqueue" not in str(error):
            raise
        return False
    return True


def main():
    vectors, database = sys.argv[1:]
    with open(vectors, encoding="utf-8") as file:
        jobs = [job for vector in json.load(file) for job in vector["jobs"]]
    # Each statement is a transaction of its own.
    connection = sqlite3.connect(database, isolation_level=None, timeout=10)
    print(json.dumps([enqueue(connection, job) for job in jobs]))


main()
