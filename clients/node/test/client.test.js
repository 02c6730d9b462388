// Tests of the client, on the migrated database whose address is in WINDLASS_CLIENT_DATABASE, with the package pg of the
// directory in WINDLASS_TEST_NODE_PG, or with node:sqlite.
//
// What is accepted and what is stored is tested by the vectors of Windlass; see tests/drivers/enqueue_vectors.mjs.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, beforeEach, test } from "node:test";
import {
  EnqueueError, RawJson, emit, emitSync, enqueue, enqueueMany, enqueueManySync, enqueueSync,
} from "../index.js";

const address = process.env.WINDLASS_CLIENT_DATABASE;
const isPostgres = address.startsWith("postgres");
let connection;

before(async () => {
  if (isPostgres) {
    const { Client } = createRequire(`${process.env.WINDLASS_TEST_NODE_PG}/`)("pg");
    connection = new Client({ connectionString: address });
    await connection.connect();
  } else {
    const { DatabaseSync } = await import("node:sqlite");
    connection = new DatabaseSync(address);
  }
});
after(() => (isPostgres ? connection.end() : connection.close()));

const execute = (statement) => (isPostgres ? connection.query(statement) : connection.exec(statement));
const jobs = async (columns = "id") => {
  const statement = `SELECT ${columns} FROM solid_queue_jobs ORDER BY id`;
  const rows = isPostgres ? (await connection.query(statement)).rows : connection.prepare(statement).all();
  return rows.map((row) => ({ ...row }));
};
// Both throw as asynchronous functions do.
const one = async (...args) => (isPostgres ? enqueue : enqueueSync)(connection, ...args);
const many = async (...args) => (isPostgres ? enqueueMany : enqueueManySync)(connection, ...args);
const event = async (...args) => (isPostgres ? emit : emitSync)(connection, ...args);

beforeEach(async () => {
  await execute("DELETE FROM windlass_unique_jobs");
  await execute("DELETE FROM solid_queue_jobs");
  await execute("DELETE FROM windlass_events");
});

test("an event belongs to the transaction of the caller", async () => {
  await execute("BEGIN");
  await event("paid/7", { cents: 700 });
  await execute("ROLLBACK");
  await event("paid/7", { cents: 990 });
  await event("paid/7", new RawJson('{ "cents": 990 }'));
  await event("closed");
  const statement = "SELECT name, payload FROM windlass_events ORDER BY name";
  const rows = isPostgres ? (await connection.query(statement)).rows : connection.prepare(statement).all();
  const found = rows.map(({ name, payload }) => [name, payload]);
  assert.deepEqual(found, [["closed", "null"], ["paid/7", '{"cents":990}']]);
  for (const [name, payload, says] of [
    ["paid/7", 1, /cannot emit .*another payload/],
    ["", 1, /its name must have 1 to 255 bytes/],
    [7, 1, /its name must be a string/],
    ["a", NaN, /are not JSON/],
    ["a", new RawJson("{"), /its payload is not JSON/],
  ]) {
    await assert.rejects(event(name, payload), (error) => error instanceof EnqueueError && says.test(error.message));
  }
});

test("a job belongs to the transaction of the caller", async () => {
  await execute("BEGIN");
  await one("pay", { order: 7 });
  await execute("ROLLBACK");
  assert.deepEqual(await jobs(), []);
  await execute("BEGIN");
  const id = await one("pay", { order: 8 });
  await execute("COMMIT");
  const found = await jobs("id, arguments");
  assert.deepEqual(found.map((job) => job.arguments), ['{"order":8}']);
  assert.equal(id, isPostgres ? String(found[0].id) : undefined);
});

test("options are stored", async () => {
  const runAt = new Date("2100-01-02T03:04:05.600Z");
  await one("pay", [1.5, "ä", null], { queue: "slow", priority: -3, runAt, idempotencyKey: "k", maxAttempts: 7n });
  const columns = "queue_name, priority, arguments, idempotency_key, max_attempts, CAST(scheduled_at AS text) AS at";
  const [{ at, ...job }] = await jobs(columns);
  assert.deepEqual(job, {
    queue_name: "slow", priority: -3, arguments: '[1.5,"ä",null]', idempotency_key: "k", max_attempts: 7,
  });
  assert.equal(at.slice(0, 21), "2100-01-02 03:04:05.6");
});

test("tags and metadata are values", async () => {
  const described = { tags: ["a", "ü"], meta: { k: [1, null] }, version: 2, timeoutSeconds: 1.5, tenant: "acme" };
  await one("pay", 1, described);
  await many("pay", [described]);
  for (const { policy, tenant } of await jobs("policy, tenant")) {
    const { extras, timeout } = JSON.parse(policy);
    assert.deepEqual([extras, timeout, tenant], [{ tags: ["a", "ü"], meta: { k: [1, null] }, version: 2 }, 1500, "acme"]);
  }
});

test("rates are values", async () => {
  const rates = [{ number: 10, period: "second", key: "ü" }, { number: 9, period: "day" }];
  await one("pay", 1, { rates });
  await many("pay", [{ rates }]);
  assert.deepEqual(await jobs("gate"), [1, 2].map(() => ({ gate: "ü\x1fpay" })));
});

test("without arguments they are null", async () => {
  await one("pay");
  await many("pay", [{}, { arguments: null, queue: undefined }]);
  assert.deepEqual(await jobs("arguments"), [1, 2, 3].map(() => ({ arguments: "null" })));
});

test("a list is enqueued in its order", async () => {
  const list = Array.from({ length: 20 }, (_, index) => ({ arguments: index, queue: "slow", atMostOnce: false }));
  const ids = await many("pay", list.values());
  const found = await jobs("id, arguments, queue_name");
  assert.deepEqual(ids, isPostgres ? found.map((job) => String(job.id)) : undefined);
  assert.deepEqual(found.map((job) => [job.arguments, job.queue_name]), list.map((job) => [`${job.arguments}`, "slow"]));
  assert.deepEqual(await many("pay", []), isPostgres ? [] : undefined);
});

test("a list is enqueued as a whole", async () => {
  for (const [second, says] of [
    [{ queue: "a b" }, /queue/],
    [{ queue: 7 }, /job 2 of the list: its queue must be a string of valid Unicode, not 7/],
    [{ arguments: new RawJson('1},{"queue":"x"') }, /job 2 of the list: its arguments are not JSON/],
    [{ arguments: new RawJson("") }, /its arguments are not JSON/],
    [{ runAt: "now" }, /its runAt must be a time with its zone/],
    [{ priorty: 1 }, /a job has no priorty/],
    [7, /it is not an object/],
  ]) {
    const refused = await many("pay", [{}, second]).catch((error) => error);
    assert.ok(refused instanceof EnqueueError, `${refused}`);
    assert.match(refused.message, /^cannot enqueue /);
    assert.match(refused.message, says);
    assert.deepEqual(await jobs(), []);
  }
});

test("what is refused says why", async () => {
  for (const [className, args, options, says] of [
    ["pay", () => 1, {}, /its arguments are not JSON/],
    ["pay", { a: NaN }, {}, /its arguments are not JSON: NaN is no number of JSON/],
    ["pay", 7n, {}, /its arguments are not JSON/],
    ["pay", "\0", {}, /NUL/],
    ["pay", new RawJson("{"), {}, /its arguments are not JSON/],
    ["pay", null, { queue: "a b" }, /its queue must have 1 to 255 bytes/],
    ["pay", null, { queue: "a\0" }, /0x00|its queue must have/],
    ["pay", null, { uniqueId: "\ud800" }, /its uniqueId must be a string of valid Unicode/],
    ["pay", null, { priority: 1.5 }, /its priority must be an integer, not 1.5/],
    ["pay", null, { priority: "5" }, /its priority must be an integer, not "5"/],
    ["pay", null, { priority: 2 ** 31 }, /priority|out of range/],
    ["pay", null, { maxAttempts: 2n ** 63n }, /its maxAttempts must be an integer/],
    ["pay", null, { delaySeconds: NaN }, /its delaySeconds must be a number, not NaN/],
    ["pay", null, { delaySeconds: -1 }, /its delay_seconds must be 0 or more/],
    ["pay", null, { atMostOnce: 1 }, /its atMostOnce must be true or false/],
    ["pay", null, { runAt: new Date(NaN) }, /its runAt must be a time with its zone/],
    ["pay", null, { runAt: "2100-02-30T00:00:00Z" }, /run_at|out of range/],
    ["pay", null, { delay: 5 }, /a job has no delay/],
    ["a b", null, {}, /its class must have 1 to 255 bytes/],
    [undefined, null, {}, /its class must be a string/],
  ]) {
    const refused = await one(className, args, options).catch((error) => error);
    assert.ok(refused instanceof EnqueueError, `${says}: ${refused}`);
    assert.match(refused.message, /^cannot enqueue /);
    assert.match(refused.message, says);
    assert.deepEqual(await jobs(), []);
  }
});

test("another connection is refused", async () => {
  await assert.rejects(enqueue({}, "pay"), /for node:sqlite there is enqueueSync/);
  assert.throws(() => enqueueSync({}, "pay"), /for pg there is enqueue/);
});
