// Enqueues the vectors of `enqueue_vectors.json` with the client for Node.
//
// Usage: enqueue_vectors.mjs DRIVER VECTORS DATABASE, where DRIVER is pg or node:sqlite
// Prints a JSON list: for each job, whether it was accepted.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { EnqueueError, RawJson, enqueue, enqueueSync } from "../../clients/node/index.js";

/** Returns a value whose text is written as `{"repeat": text, "times": n}` or `{"concat": [..]}`. */
function long(value) {
  if (typeof value !== "object" || value === null) return value;
  return value.concat?.map(long).join("") ?? value.repeat.repeat(value.times);
}

async function connect(driver, database) {
  if (driver === "pg") {
    const { Client } = createRequire(`${process.env.WINDLASS_TEST_NODE_PG}/`)("pg");
    const client = new Client({ connectionString: database });
    await client.connect();
    return client;
  }
  const { DatabaseSync } = await import("node:sqlite");
  return new DatabaseSync(database);
}

async function accepts(connection, job) {
  const entries = Object.entries(job).map(([column, value]) => [column, long(value)]);
  const { class: className, arguments: text, ...columns } = Object.fromEntries(entries);
  const names = Object.entries(columns).map(([column, value]) => [
    column.replace(/_[a-z]/g, (letter) => letter[1].toUpperCase()), value]);
  const options = Object.fromEntries(names);
  for (const name of ["tags", "meta", "rates"]) {
    if (typeof options[name] === "string") options[name] = new RawJson(options[name]);
  }
  const args = typeof text === "string" ? new RawJson(text) : text;
  try {
    if (connection.query) await enqueue(connection, className, args, options);
    else enqueueSync(connection, className, args, options);
  } catch (error) {
    if (error instanceof EnqueueError) return false;
    throw error;
  }
  return true;
}

const [driver, vectors, database] = process.argv.slice(2);
const connection = await connect(driver, database);
const accepted = [];
for (const { jobs } of JSON.parse(readFileSync(vectors, "utf8"))) {
  for (const job of jobs) accepted.push(await accepts(connection, job));
}
console.log(JSON.stringify(accepted));
await connection.end?.();
