/** How many jobs with the same key may start in a period, which is a number of microseconds if it is no word. */
export interface Rate {
  number: number;
  period: "second" | "minute" | "hour" | "day" | number;
  burst?: number | null;
  key?: string | null;
  cost?: number | null;
}

/** What may be said of a job: the columns of the view. What is absent, undefined or null has its default. */
export interface Options {
  queue?: string | null;
  priority?: number | bigint | null;
  runAt?: Date | string | null;
  delaySeconds?: number | null;
  uniqueId?: string | null;
  uniqueScope?: "while_waiting" | "until_finished" | "until_result_expires" | null;
  onConflict?: "existing" | "refuse" | "replace" | "run_again" | null;
  idempotencyKey?: string | null;
  concurrencyKey?: string | null;
  concurrencyGroup?: string | null;
  concurrencyLimit?: number | bigint | null;
  concurrencyOnConflict?: "block" | "discard" | "ordered" | null;
  maxAttempts?: number | bigint | null;
  maxCrashes?: number | bigint | null;
  atMostOnce?: boolean | null;
  traceparent?: string | null;
  tags?: string[] | RawJson | null;
  meta?: Record<string, unknown> | RawJson | null;
  version?: number | bigint | null;
  timeoutSeconds?: number | null;
  backoffSeconds?: number | null;
  backoffCapSeconds?: number | null;
  expiresInSeconds?: number | null;
  notAfter?: Date | string | null;
  retryForSeconds?: number | null;
  keepResultSeconds?: number | null;
  tenant?: string | null;
  batchId?: number | bigint | null;
  afterBatch?: number | bigint | null;
  runsOn?: "success" | "failure" | "finish" | null;
  rates?: Rate[] | RawJson | null;
}

/** A job of a list. */
export interface Job extends Options {
  arguments?: unknown;
}

/** A client, pool client or pool of pg. */
export interface PgClient {
  query(query: { text: string; values: unknown[]; rowMode: "array" }): Promise<{ rows: unknown[][] }>;
}

/** A DatabaseSync of node:sqlite. */
export interface SqliteDatabase {
  prepare(statement: string): { run(...values: (string | number | bigint)[]): unknown };
}

/** The job or event is refused, and nothing is stored. The message is the database's, or says which value is wrong. */
export class EnqueueError extends Error {}

/** Arguments, or a payload, that are JSON text already. */
export class RawJson {
  constructor(text: string);
  readonly text: string;
}

/** Enqueues a job by a client or pool of pg, in the transaction of the client. Resolves to the job's id. */
export function enqueue(client: PgClient, className: string, args?: unknown, options?: Options): Promise<string>;

/** Enqueues jobs of one class, all or none, faster than one by one. Resolves to their ids, in order. */
export function enqueueMany(client: PgClient, className: string, jobs: Iterable<Job>): Promise<string[]>;

/** Enqueues a job by a database of node:sqlite, in its transaction. SQLite cannot tell the job's id. */
export function enqueueSync(database: SqliteDatabase, className: string, args?: unknown, options?: Options): void;

/** Enqueues jobs of one class, all or none, faster than one by one. */
export function enqueueManySync(database: SqliteDatabase, className: string, jobs: Iterable<Job>): void;

/** Emits an event by a client or pool of pg: jobs that wait for it run again, with its payload. */
export function emit(client: PgClient, name: string, payload?: unknown): Promise<void>;

/** Emits an event by a database of node:sqlite, in its transaction. */
export function emitSync(database: SqliteDatabase, name: string, payload?: unknown): void;
