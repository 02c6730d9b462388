"""Tests of the client, on the migrated database whose address is in WINDLASS_CLIENT_DATABASE.

What is accepted and what is stored is tested by the vectors of Windlass; see tests/drivers/enqueue_vectors.py.
"""

import enum
import json
import os
import sqlite3
import sys
import unittest
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from windlass_client import EnqueueError, RawJson, emit, enqueue, enqueue_many  # noqa: E402

DATABASE = os.environ["WINDLASS_CLIENT_DATABASE"]
IS_POSTGRES = DATABASE.startswith("postgres")
if IS_POSTGRES:
    import psycopg
    from psycopg.rows import dict_row


class Queue(str, enum.Enum):
    SLOW = "slow"


class ClientTest(unittest.TestCase):
    def setUp(self):
        if IS_POSTGRES:
            self.conn = psycopg.connect(DATABASE, row_factory=dict_row)
        else:
            self.conn = sqlite3.connect(DATABASE, timeout=10)
            self.conn.row_factory = sqlite3.Row
        self.addCleanup(self.conn.close)
        self.conn.execute("DELETE FROM windlass_unique_jobs")
        self.conn.execute("DELETE FROM solid_queue_jobs")
        self.conn.execute("DELETE FROM windlass_events")
        self.conn.commit()

    def jobs(self, columns="id"):
        found = self.conn.execute(f"SELECT {columns} FROM solid_queue_jobs ORDER BY id").fetchall()
        return [tuple(row[column] for column in columns.split(", ")) for row in found]

    def told(self, ids):
        """What the client returns for jobs with these ids."""
        return ids if IS_POSTGRES else None

    def test_a_job_belongs_to_the_transaction_of_the_caller(self):
        enqueue(self.conn, "pay", {"order": 7})
        self.conn.rollback()
        self.assertEqual(self.jobs(), [])
        found = enqueue(self.conn, "pay", {"order": 8})
        self.conn.commit()
        [(job, arguments)] = self.jobs("id, arguments")
        self.assertEqual((found, arguments), (self.told(job), '{"order":8}'))

    def test_options_are_stored(self):
        at = datetime(2100, 1, 2, 3, 4, 5, 600000, tzinfo=timezone.utc)
        enqueue(self.conn, "pay", [1.5, "ä", None], queue=Queue.SLOW, priority=-3, run_at=at, idempotency_key="k")
        [(queue, priority, arguments, key, at)] = self.jobs(
            "queue_name, priority, arguments, idempotency_key, scheduled_at"
        )
        self.assertEqual((queue, priority, arguments, key), ("slow", -3, '[1.5,"ä",null]', "k"))
        self.assertEqual(str(at)[:21], "2100-01-02 03:04:05.6")

    def test_tags_and_metadata_are_values(self):
        described = {"tags": ["a", "ü"], "meta": {"k": [1, None]}, "version": 2, "timeout_seconds": 1.5, "tenant": "acme"}
        enqueue(self.conn, "pay", **described)
        enqueue_many(self.conn, "pay", [described])
        for policy, tenant in self.jobs("policy, tenant"):
            policy = json.loads(policy)
            self.assertEqual((policy["timeout"], tenant), (1500, "acme"))
            self.assertEqual(policy["extras"], {"tags": ["a", "ü"], "meta": {"k": [1, None]}, "version": 2})
        for wrong in ({"tags": "a"}, {"tags": [1]}, {"meta": []}, {"meta": {"": 1}}, {"tags": [float("nan")]}):
            with self.subTest(wrong), self.assertRaises(EnqueueError):
                enqueue(self.conn, "pay", **wrong)
            self.conn.rollback()

    def test_rates_are_values(self):
        rates = [{"number": 10, "period": "second", "key": "ü"}, {"number": 9, "period": "day"}]
        enqueue(self.conn, "pay", rates=rates)
        enqueue_many(self.conn, "pay", [{"rates": rates}])
        self.assertEqual(self.jobs("gate"), [("ü\x1fpay",)] * 2)
        for wrong in ([{"number": 1}], [{"number": 1, "period": "day", "key": "a\x1fb"}], {"number": 1}, "a"):
            with self.subTest(wrong), self.assertRaises(EnqueueError):
                enqueue(self.conn, "pay", rates=wrong)
            self.conn.rollback()

    def test_without_arguments_they_are_null(self):
        enqueue(self.conn, "pay")
        enqueue_many(self.conn, "pay", [{}, {"arguments": None, "queue": None}])
        self.assertEqual(self.jobs("arguments, queue_name"), [("null", "default")] * 3)

    def test_a_list_is_enqueued_in_its_order(self):
        jobs = ({"arguments": number, "queue": "slow", "at_most_once": False} for number in range(20))
        found = enqueue_many(self.conn, "pay", jobs)
        rows = self.jobs("id, arguments, queue_name")
        self.assertEqual(found, self.told([job for job, _, _ in rows]))
        self.assertEqual([row[1:] for row in rows], [(str(number), "slow") for number in range(20)])
        self.assertEqual(enqueue_many(self.conn, "pay", []), self.told([]))

    def test_a_list_is_enqueued_as_a_whole(self):
        for second, says in [
            ({"queue": "a b"}, "queue"),
            ({"queue": 7}, "job 2 of the list: its queue must be a str"),
            ({"arguments": RawJson('1},{"queue":"x"')}, "job 2 of the list: its arguments are not JSON"),
            ({"arguments": RawJson("")}, "its arguments are not JSON"),
            ({"run_at": "now"}, "its run_at must be a time with its zone"),
            ({"priorty": 1}, "a job has no priorty"),
            (7, "it is not a mapping"),
        ]:
            with self.subTest(second), self.assertRaisesRegex(EnqueueError, f"cannot enqueue .*{says}"):
                enqueue_many(self.conn, "pay", [{}, second])
            self.conn.rollback()
            self.assertEqual(self.jobs(), [])

    def test_what_is_refused_says_why(self):
        for class_name, arguments, options, says in [
            ("pay", {1, 2}, {}, "its arguments are not JSON: Object of type set"),
            ("pay", float("nan"), {}, "its arguments are not JSON"),
            ("pay", "\ud800", {}, "surrogates not allowed"),
            ("pay", "\0", {}, "NUL"),
            ("pay", RawJson("{"), {}, "its arguments are not JSON"),
            ("pay", None, {"queue": "a b"}, "its queue must have 1 to 255 bytes"),
            ("pay", None, {"queue": "a\0"}, "NUL|its queue must have"),
            ("pay", None, {"queue": b"a"}, "its queue must be a str, not b'a'"),
            ("pay", None, {"priority": True}, "its priority must be an int, not True"),
            ("pay", None, {"priority": "5"}, "its priority must be an int, not '5'"),
            ("pay", None, {"priority": 2**31}, "priority|out of range"),
            ("pay", None, {"max_attempts": 2**63}, "its max_attempts must be an int"),
            ("pay", None, {"delay_seconds": float("nan")}, "its delay_seconds must be a number, not nan"),
            ("pay", None, {"delay_seconds": -1}, "its delay_seconds must be 0 or more"),
            ("pay", None, {"at_most_once": 1}, "its at_most_once must be a bool"),
            ("pay", None, {"run_at": datetime(2100, 1, 1)}, "its run_at must be a time with its zone"),
            ("pay", None, {"run_at": "2100-02-30T00:00:00Z"}, "run_at|out of range"),
            ("pay", None, {"delay": 5}, "a job has no delay"),
            ("a b", None, {}, "its class must have 1 to 255 bytes"),
            (None, None, {}, "its class must be a str"),
        ]:
            with self.subTest(says), self.assertRaisesRegex(EnqueueError, "cannot enqueue") as refused:
                enqueue(self.conn, class_name, arguments, **options)
            self.assertRegex(str(refused.exception), says)
            self.conn.rollback()
            self.assertEqual(self.jobs(), [])

    def test_an_event_belongs_to_the_transaction_of_the_caller(self):
        emit(self.conn, "paid/7", {"cents": 700})
        self.conn.rollback()
        emit(self.conn, "paid/7", {"cents": 990})
        emit(self.conn, "paid/7", RawJson('{ "cents": 990 }'))
        emit(self.conn, "closed")
        self.conn.commit()
        found = self.conn.execute("SELECT name, payload FROM windlass_events ORDER BY name").fetchall()
        events = [(row["name"], row["payload"]) for row in found]
        self.assertEqual(events, [("closed", "null"), ("paid/7", '{"cents":990}')])
        for name, payload, says in [
            ("paid/7", 1, "another payload"),
            ("", 1, "its name must have 1 to 255 bytes"),
            (7, 1, "its name must be a str"),
            ("a", float("nan"), "are not JSON"),
            ("a", RawJson("{"), "its payload is not JSON"),
        ]:
            with self.subTest(says), self.assertRaisesRegex(EnqueueError, f"cannot emit .*{says}"):
                emit(self.conn, name, payload)
            self.conn.rollback()

    def test_errors_of_the_connection_are_those_of_the_driver(self):
        self.conn.close()
        errors = psycopg.Error if IS_POSTGRES else sqlite3.Error
        with self.assertRaises(errors):
            enqueue(self.conn, "pay")
        with self.assertRaisesRegex(TypeError, "a connection of sqlite3, psycopg 3 or SQLAlchemy is needed, not object"):
            enqueue(object(), "pay")


unittest.main()
