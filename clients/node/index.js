// Enqueues jobs of Windlass and emits events in the caller's own transaction, on SQLite and Postgres.

/** The job or event is refused, and nothing is stored. The message is the database's, or says which value is wrong. */
export class EnqueueError extends Error {
  name = "EnqueueError";
}

/** Arguments, or a payload, that are JSON text already. */
export class RawJson {
  constructor(text) {
    this.text = text;
  }
}

const TIME = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/;
const TEXT = ["a string of valid Unicode", (value) => typeof value === "string" && !/\p{Surrogate}/u.test(value)];
const INTEGER = ["an integer", (value) =>
  typeof value === "bigint" ? BigInt.asIntN(64, value) === value : Number.isSafeInteger(value)];
const NUMBER = ["a number", Number.isFinite];
const BOOLEAN = ["true or false", (value) => typeof value === "boolean"];
const INSTANT = ["a time with its zone: a Date, or a string as 2026-12-24T18:00:00Z",
  (value) => typeof value === "string" && TIME.test(value)];
// Of the values that are JSON, the text is checked instead.
const JSON_VALUE = ["JSON", () => true];

// The options, each with the type of its column of the view windlass_enqueue_v2 on Postgres, and what it takes.
const OPTIONS = {
  queue: ["text", TEXT],
  priority: ["integer", INTEGER],
  runAt: ["timestamptz", INSTANT],
  delaySeconds: ["double precision", NUMBER],
  uniqueId: ["text", TEXT],
  uniqueScope: ["text", TEXT],
  onConflict: ["text", TEXT],
  idempotencyKey: ["text", TEXT],
  concurrencyKey: ["text", TEXT],
  concurrencyGroup: ["text", TEXT],
  concurrencyLimit: ["bigint", INTEGER],
  concurrencyOnConflict: ["text", TEXT],
  maxAttempts: ["bigint", INTEGER],
  maxCrashes: ["bigint", INTEGER],
  atMostOnce: ["boolean", BOOLEAN],
  traceparent: ["text", TEXT],
  tags: ["text", JSON_VALUE],
  meta: ["text", JSON_VALUE],
  version: ["bigint", INTEGER],
  timeoutSeconds: ["double precision", NUMBER],
  backoffSeconds: ["double precision", NUMBER],
  backoffCapSeconds: ["double precision", NUMBER],
  expiresInSeconds: ["double precision", NUMBER],
  notAfter: ["timestamptz", INSTANT],
  retryForSeconds: ["double precision", NUMBER],
  keepResultSeconds: ["double precision", NUMBER],
  tenant: ["text", TEXT],
  batchId: ["bigint", INTEGER],
  afterBatch: ["bigint", INTEGER],
  runsOn: ["text", TEXT],
  rates: ["text", JSON_VALUE],
};

/** Enqueues a job by a client or pool of pg, in the transaction of the client. Resolves to the job's id. */
export async function enqueue(client, className, args, options = {}) {
  const where = `cannot enqueue \`${className}\``;
  const ids = await query(client, where, "windlass_enqueue_v2", jobOf(where, className, args, options));
  return ids[0];
}

/** Enqueues jobs of one class, all or none, faster than one by one. Resolves to their ids, in order. */
export async function enqueueMany(client, className, jobs) {
  const where = `cannot enqueue \`${className}\``;
  return query(client, where, "windlass_enqueue_many_v2", listOf(where, className, jobs));
}

/** Enqueues a job by a database of node:sqlite, in its transaction. SQLite cannot tell the job's id. */
export function enqueueSync(database, className, args, options = {}) {
  const where = `cannot enqueue \`${className}\``;
  run(database, where, "windlass_enqueue_v2", jobOf(where, className, args, options));
}

/** Enqueues jobs of one class, all or none, faster than one by one. */
export function enqueueManySync(database, className, jobs) {
  const where = `cannot enqueue \`${className}\``;
  run(database, where, "windlass_enqueue_many_v2", listOf(where, className, jobs));
}

/** Emits an event by a client or pool of pg: jobs that wait for it run again, with its payload. */
export async function emit(client, name, payload) {
  const where = `cannot emit \`${name}\``;
  await query(client, where, "windlass_emit", eventOf(where, name, payload));
}

/** Emits an event by a database of node:sqlite, in its transaction. */
export function emitSync(database, name, payload) {
  const where = `cannot emit \`${name}\``;
  run(database, where, "windlass_events_emit", eventOf(where, name, payload));
}

function eventOf(where, name, payload) {
  if (!TEXT[1](name)) throw new EnqueueError(`${where}: its name must be ${TEXT[0]}`);
  return [["name", "text", name], ["payload", "text", json(`${where}: its payload`, payload ?? null, false)]];
}

/** Returns the columns that are set: [name, type, value] each. */
function columnsOf(where, args, options, isInList) {
  const columns = [];
  if (args !== undefined && args !== null) columns.push(["arguments", "text", json(`${where}: its arguments`, args, isInList)]);
  for (let [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(OPTIONS, name)) throw new EnqueueError(`${where}: a job has no ${name}`);
    if (value === undefined || value === null) continue;
    const [type, rule] = OPTIONS[name];
    if (rule === JSON_VALUE) {
      columns.push([name, type, json(`${where}: its ${name}`, value, isInList)]);
      continue;
    }
    const [expected, fits] = rule;
    if (value instanceof Date && !Number.isNaN(value.getTime())) value = value.toISOString();
    if (!fits(value)) throw new EnqueueError(`${where}: its ${name} must be ${expected}, not ${shown(value)}`);
    columns.push([name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), type, value]);
  }
  return columns;
}

function jobOf(where, className, args, options) {
  return [["class", "text", classOf(where, className)], ...columnsOf(where, args, options, false)];
}

function listOf(where, className, jobs) {
  const texts = Array.from(jobs, (job, index) => {
    const place = `${where}: job ${index + 1} of the list`;
    if (typeof job !== "object" || job === null) throw new EnqueueError(`${place}: it is not an object`);
    const { arguments: args, ...options } = job;
    const pairs = columnsOf(place, args, options, true).map(([column, , value]) => {
      const isText = !["arguments", "tags", "meta", "rates"].includes(column) && typeof value === "string";
      return `"${column}":${isText ? JSON.stringify(value) : value}`;
    });
    return `{${pairs.join(",")}}`;
  });
  return [["class", "text", classOf(where, className)], ["jobs", "json", `[${texts.join(",")}]`]];
}

function classOf(where, className) {
  if (!TEXT[1](className)) throw new EnqueueError(`${where}: its class must be ${TEXT[0]}`);
  return className;
}

function json(what, value, isInList) {
  let text;
  try {
    text = value instanceof RawJson ? value.text : JSON.stringify(value, refuseNumbers);
    if (isInList) JSON.parse(text); // It must not end the object that it is in.
  } catch (cause) {
    throw new EnqueueError(`${what} are not JSON: ${cause.message}`, { cause });
  }
  if (typeof text !== "string") throw new EnqueueError(`${what} are not JSON: ${shown(value)}`);
  return text;
}

function refuseNumbers(_, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value} is no number of JSON`);
  return value;
}

function shown(value) {
  return typeof value === "bigint" || typeof value === "number" ? `${value}` : JSON.stringify(value) ?? typeof value;
}

async function query(client, where, name, columns) {
  if (typeof client?.query !== "function") {
    throw new TypeError("a client or pool of pg is needed; for node:sqlite there is enqueueSync");
  }
  const given = columns.map(([column, type], index) => `${column} => CAST($${index + 1} AS ${type})`);
  const text = `SELECT ${name}(${given.join(", ")})`;
  const values = columns.map(([, , value]) => String(value));
  try {
    const { rows } = await client.query({ text, values, rowMode: "array" });
    return rows.map(([id]) => String(id));
  } catch (error) {
    throw refused(where, error);
  }
}

function run(database, where, name, columns) {
  if (typeof database?.prepare !== "function") {
    throw new TypeError("a DatabaseSync of node:sqlite is needed; for pg there is enqueue");
  }
  const names = columns.map(([column]) => column).join(", ");
  // To node:sqlite, a number is never an integer, and a boolean is nothing.
  const values = columns.map(([, type, value]) =>
    type.endsWith("int") || type === "integer" || type === "boolean" ? BigInt(value) : value);
  try {
    database.prepare(`INSERT INTO ${name} (${names}) VALUES (${values.map(() => "?").join(", ")})`).run(...values);
  } catch (error) {
    throw refused(where, error);
  }
}

/** What is thrown for an error of the driver: its own, unless the database refuses the job, and would again. */
function refused(where, error) {
  const code = String(error?.code ?? "");
  const isSaid = /cannot (enqueue|emit)/.test(error?.message);
  if (code.startsWith("40") || !(isSaid || code.startsWith("22") || code === "42501")) return error;
  return new EnqueueError(isSaid ? error.message : `${where}: ${error.message}`, { cause: error });
}
