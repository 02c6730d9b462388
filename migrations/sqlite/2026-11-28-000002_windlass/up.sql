-- Windlass's columns and indexes in Solid Queue's tables, its own tables, triggers, and enqueues by SQL.
--
-- A running Rails app is not disturbed: columns in Solid Queue's tables are nullable or have a default, and stay NULL
-- for jobs that use none of this. No table refers to the jobs by a foreign key: its check would be paid by every job
-- that is deleted, and ids are never used twice, so that a row which outlives its job misleads nobody until a
-- supervisor sweeps it away.

------------------------------------------------------------------------------------------------------------------------
-- Columns and indexes in Solid Queue's tables
------------------------------------------------------------------------------------------------------------------------

-- Jobs: the facts that a supervisor needs to recover one without its code.
ALTER TABLE solid_queue_jobs ADD COLUMN attempts integer NOT NULL DEFAULT 0;
ALTER TABLE solid_queue_jobs ADD COLUMN max_attempts integer;
ALTER TABLE solid_queue_jobs ADD COLUMN crash_count integer NOT NULL DEFAULT 0;
ALTER TABLE solid_queue_jobs ADD COLUMN max_crashes integer;
ALTER TABLE solid_queue_jobs ADD COLUMN at_most_once boolean NOT NULL DEFAULT 0;
-- The claim that ended last by its owner's own word: tells a worker whose COMMIT got no answer that the ending was its
-- own.
ALTER TABLE solid_queue_jobs ADD COLUMN last_claim_id bigint;
-- Makes a repeated enqueue harmless.
ALTER TABLE solid_queue_jobs ADD COLUMN idempotency_key varchar;
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_jobs_on_idempotency_key ON solid_queue_jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
-- All that the job's type or its enqueue says beyond these columns, as JSON.
ALTER TABLE solid_queue_jobs ADD COLUMN policy text;
-- The name by which the application knows the job.
ALTER TABLE solid_queue_jobs ADD COLUMN unique_id varchar;
CREATE INDEX IF NOT EXISTS index_windlass_jobs_on_unique_id ON solid_queue_jobs (unique_id) WHERE unique_id IS NOT NULL;
-- The number of jobs of its key that may be ready or claimed at once. NULL beside a key: a job of Rails, whose limit
-- is Solid Queue's own matter. The rows show who holds a slot: a ready or claimed execution that names the key. There
-- is no count to keep, so none can leak; jobs without a key have no part in any of it.
ALTER TABLE solid_queue_jobs ADD COLUMN concurrency_slots integer;
-- 'discard', or NULL to wait.
ALTER TABLE solid_queue_jobs ADD COLUMN concurrency_conflict varchar;
-- Finds the youngest job of a key, whose limit is the one that counts.
CREATE INDEX IF NOT EXISTS index_windlass_jobs_on_concurrency_key ON solid_queue_jobs (concurrency_key, id) WHERE concurrency_slots IS NOT NULL;
-- The trace context of the enqueue, as the header `traceparent` of W3C Trace Context. Any program may write it; a text
-- of another form counts as none.
ALTER TABLE solid_queue_jobs ADD COLUMN traceparent varchar;
-- The customer, or whatever else fair shares are for. Nothing reads it yet.
ALTER TABLE solid_queue_jobs ADD COLUMN tenant varchar;
-- The rates of its starts, as JSON: of each the key, the number, the period in microseconds, the burst and the cost.
ALTER TABLE solid_queue_jobs ADD COLUMN rates text;
-- The line in which a job with rates waits: the keys of all gates that it passes at once. NULL: it has no rate.
ALTER TABLE solid_queue_jobs ADD COLUMN gate varchar;
-- True: jobs wait for this one. It is set in the transaction that enqueues them.
ALTER TABLE solid_queue_jobs ADD COLUMN has_dependents boolean;

-- Ready executions: lets a worker claim only what it can perform. NULL in rows made by Rails.
ALTER TABLE solid_queue_ready_executions ADD COLUMN class_name varchar;
-- The job is at most once, or was running when a process died: it is noted as begun only when a thread is free for it,
-- or, if it is only at most once and short, a moment before.
-- NULL: it is neither, and may be taken to have begun a few milliseconds early, with others as short.
ALTER TABLE solid_queue_ready_executions ADD COLUMN cautious boolean;
ALTER TABLE solid_queue_ready_executions ADD COLUMN concurrency_key varchar;
CREATE INDEX IF NOT EXISTS index_windlass_ready_on_concurrency_key ON solid_queue_ready_executions (concurrency_key) WHERE concurrency_key IS NOT NULL;

-- Claimed executions. NULL: claimed, but no thread has begun it.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN started_at datetime(6);
-- Somebody asked for the running job to be cancelled. It stays with the claim until the claim ends, however it ends.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN cancel_requested_at datetime(6);
-- The end of the job when its process ends, decided by that process when the job overran its time: JSON.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN verdict text;
-- The thread, and the progress that the job has told: JSON.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN note text;
ALTER TABLE solid_queue_claimed_executions ADD COLUMN concurrency_key varchar;
CREATE INDEX IF NOT EXISTS index_windlass_claimed_on_concurrency_key ON solid_queue_claimed_executions (concurrency_key) WHERE concurrency_key IS NOT NULL;
-- The semaphore of Solid Queue of which the job holds a slot.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN semaphore_id bigint;
-- True: the claim was made ahead of the worker's threads, so that it is not known whether its job had started when its
-- process died.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN prefetched boolean;
-- Since when the job had been ready, by the database's clock.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN ready_at datetime(6);

-- Scheduled executions: the concurrency key of a job that waits for its next run and keeps its slot: one of an ordered
-- key, behind which nothing of that key runs.
ALTER TABLE solid_queue_scheduled_executions ADD COLUMN concurrency_key varchar;
CREATE INDEX IF NOT EXISTS index_windlass_scheduled_on_concurrency_key ON solid_queue_scheduled_executions (concurrency_key)
    WHERE concurrency_key IS NOT NULL;

-- Blocked executions: the line of a job with rates. Its concurrency key is four blanks then.
ALTER TABLE solid_queue_blocked_executions ADD COLUMN gate varchar;
CREATE INDEX IF NOT EXISTS index_windlass_blocked_on_gate ON solid_queue_blocked_executions (gate, priority, job_id) WHERE gate IS NOT NULL;

-- Blocked executions: those of Solid Queue, whose wait expires.
CREATE INDEX IF NOT EXISTS index_windlass_blocked_by_ruby ON solid_queue_blocked_executions (concurrency_key)
    WHERE expires_at < '9999-12-31 00:00:00.000000';

-- Failed executions: the properties that failures have in common, class, kind and the shape of the message, as a hash.
-- NULL for failures that another program has stored, until a supervisor fills it in.
ALTER TABLE solid_queue_failed_executions ADD COLUMN fingerprint varchar;
CREATE INDEX IF NOT EXISTS index_windlass_failed_on_fingerprint ON solid_queue_failed_executions (fingerprint, id);

-- Processes. NULL in the rows of Rails processes, which Windlass leaves alone.
ALTER TABLE solid_queue_processes ADD COLUMN heartbeat_seq bigint;
ALTER TABLE solid_queue_processes ADD COLUMN draining boolean NOT NULL DEFAULT 0;
-- Wants to be notified of new work.
ALTER TABLE solid_queue_processes ADD COLUMN listening boolean NOT NULL DEFAULT 0;
-- The channel on which a worker is notified of new work. Up to its second `_`, it is the same for workers that take the
-- same jobs. NULL: that of all.
ALTER TABLE solid_queue_processes ADD COLUMN channel varchar;
-- When an idle worker last asked this one to release what it has not started.
ALTER TABLE solid_queue_processes ADD COLUMN release_requested_at datetime(6);

-- Pauses: who paused a queue, and why. NULL where Rails did.
ALTER TABLE solid_queue_pauses ADD COLUMN paused_by varchar;
ALTER TABLE solid_queue_pauses ADD COLUMN pause_reason text;

-- Recurring tasks. A row is Windlass' when it has a next_run_at; those of a Rails app have none, and each leaves the
-- other's alone. Ours are not static: Solid Queue deletes static tasks that its own configuration does not have.
--
-- The first tick that nobody has dealt with. It moves in the transaction that enqueues, and outlives every job, so that
-- no tick is fired twice.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN next_run_at datetime(6);
-- The last tick that was fired.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN last_run_at datetime(6);
-- A tick that waits for the job before it to end.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN queued_run_at datetime(6);
-- The jobs that were not known to have ended when the last tick was fired: a JSON array, kept where jobs must not
-- overlap.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN open_jobs text;
-- The schedule as it was given. Ruby reads `schedule`, so that one has the same times in the words of fugit.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN schedule_text varchar;
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN time_zone varchar;
-- Missed ticks, overlapping jobs, and the policy of the jobs: JSON.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN options text;
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN paused_at datetime(6);
-- When a scheduler that has the task in its code or configuration last said so; tasks scheduled at run time have none.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN declared_at datetime(6);
-- Of the program that declared it: an older one does not overwrite it.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN revision bigint;
-- Grows with every change: who has seen an older one changes nothing.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN row_version bigint NOT NULL DEFAULT 0;
-- The deployments whose start a task with the schedule `@start` has had, oldest first: a JSON array of revision texts.
-- A program of an old deployment that starts again finds its own among them.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN starts text;
CREATE INDEX IF NOT EXISTS index_windlass_recurring_tasks_on_next_run_at ON solid_queue_recurring_tasks (next_run_at) WHERE next_run_at IS NOT NULL;

-- Batches, for their lists.
CREATE INDEX IF NOT EXISTS windlass_batches_open ON solid_queue_batches (id) WHERE finished_at IS NULL;
CREATE INDEX IF NOT EXISTS windlass_batches_over ON solid_queue_batches (id) WHERE finished_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS windlass_batches_failed ON solid_queue_batches (id) WHERE failed_at IS NOT NULL;

-- Batch executions. A batch is over when none is left: found from behind, since jobs end from the front.
CREATE INDEX IF NOT EXISTS windlass_batch_executions_on_batch ON solid_queue_batch_executions (batch_id, job_id);

------------------------------------------------------------------------------------------------------------------------
-- Attempts, results and names of jobs
------------------------------------------------------------------------------------------------------------------------

-- The attempts that did not succeed, and how they ended; the newest few of each job.
CREATE TABLE IF NOT EXISTS windlass_attempts (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL,
    claim_id bigint NOT NULL,
    attempt integer NOT NULL,
    outcome varchar NOT NULL,
    kind varchar NOT NULL,
    message text NOT NULL,
    place text,
    process_name varchar,
    hostname varchar,
    pid integer,
    started_at datetime(6),
    ended_at datetime(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS index_windlass_attempts_on_job_id ON windlass_attempts (job_id, id);
-- Finds the jobs that were cancelled or discarded; other attempts pay nothing.
CREATE INDEX IF NOT EXISTS index_windlass_attempts_on_outcome ON windlass_attempts (outcome, id) WHERE outcome IN ('cancelled', 'discarded');

-- The values that jobs returned, for as long as somebody may ask. `batch_id`: those of a batch are read in their order
-- by what follows it.
CREATE TABLE IF NOT EXISTS windlass_results (
    job_id bigint PRIMARY KEY NOT NULL,
    unique_id varchar,
    class_name varchar NOT NULL,
    outcome varchar NOT NULL,
    result text,
    error text,
    attempt integer NOT NULL,
    progress text,
    finished_at datetime(6) NOT NULL,
    expires_at datetime(6) NOT NULL,
    batch_id bigint
);
CREATE INDEX IF NOT EXISTS index_windlass_results_on_unique_id ON windlass_results (unique_id, job_id) WHERE unique_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS index_windlass_results_on_expires_at ON windlass_results (expires_at);
CREATE INDEX IF NOT EXISTS windlass_results_on_batch ON windlass_results (batch_id, job_id) WHERE batch_id IS NOT NULL;

-- Those that wait for a result, so that nobody is notified for nothing.
CREATE TABLE IF NOT EXISTS windlass_waiters (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL,
    expires_at datetime(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS index_windlass_waiters_on_job_id ON windlass_waiters (job_id);

-- The job that holds a unique id: the constraint that two of them cannot. How long the id is held follows from where
-- its job stands, so that neither a claim nor an end has to touch this table, and nobody who ends jobs ever waits for
-- somebody who enqueues one. `after_job_id` is the job that has to end before the one that holds the id may begin.
CREATE TABLE IF NOT EXISTS windlass_unique_jobs (
    unique_id varchar PRIMARY KEY NOT NULL,
    job_id bigint NOT NULL,
    scope varchar NOT NULL,
    after_job_id bigint
);
CREATE INDEX IF NOT EXISTS index_windlass_unique_jobs_on_job_id ON windlass_unique_jobs (job_id);
CREATE INDEX IF NOT EXISTS index_windlass_unique_jobs_on_after_job_id ON windlass_unique_jobs (after_job_id) WHERE after_job_id IS NOT NULL;

-- The moments by which jobs must have started. A row is deleted when its job starts. `released_claim_id` is the last
-- claim of the job, if no thread has started it.
CREATE TABLE IF NOT EXISTS windlass_expiries (
    job_id bigint PRIMARY KEY NOT NULL,
    expires_at datetime(6) NOT NULL,
    released_claim_id bigint
);
CREATE INDEX IF NOT EXISTS index_windlass_expiries_on_expires_at ON windlass_expiries (expires_at);

-- The lines that jobs have logged about themselves, one row for each run. `lines` is JSON; `total` also counts the
-- lines that were dropped.
CREATE TABLE IF NOT EXISTS windlass_job_logs (
    job_id bigint NOT NULL,
    claim_id bigint NOT NULL,
    attempt integer NOT NULL,
    started_at datetime(6) NOT NULL,
    lines text NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (job_id, claim_id)
);

-- The public tokens of jobs, as hexadecimal SHA-256 of their text: who has one sees what is public of the job, and its
-- result where the class allows that.
CREATE TABLE IF NOT EXISTS windlass_public_tokens (
    digest varchar(64) PRIMARY KEY NOT NULL,
    job_id bigint NOT NULL,
    shows_result boolean NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS index_windlass_public_tokens_on_job ON windlass_public_tokens (job_id, created_at);

------------------------------------------------------------------------------------------------------------------------
-- Steps, events, dependencies and batches
------------------------------------------------------------------------------------------------------------------------

-- The steps that a job has behind it.
CREATE TABLE IF NOT EXISTS windlass_steps (
    job_id bigint NOT NULL,
    name varchar NOT NULL,
    value text NOT NULL,
    created_at datetime(6) NOT NULL,
    PRIMARY KEY (job_id, name)
);

-- Events that were emitted, by their names.
CREATE TABLE IF NOT EXISTS windlass_events (
    name varchar PRIMARY KEY NOT NULL,
    payload text NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS windlass_events_on_created_at ON windlass_events (created_at);

-- Jobs that wait for an event: at which step, since which claim, and until when.
CREATE TABLE IF NOT EXISTS windlass_waits (
    job_id bigint PRIMARY KEY NOT NULL,
    claim_id bigint NOT NULL,
    step varchar NOT NULL,
    event_name varchar NOT NULL,
    timeout_at datetime(6) NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS windlass_waits_on_event ON windlass_waits (event_name);
CREATE INDEX IF NOT EXISTS windlass_waits_on_timeout_at ON windlass_waits (timeout_at);

-- Jobs that wait for a job or a batch to end.
CREATE TABLE IF NOT EXISTS windlass_edges (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    child_job_id bigint NOT NULL,
    parent_job_id bigint,
    parent_batch_id bigint,
    name varchar,
    runs_on varchar NOT NULL,
    otherwise varchar NOT NULL,
    outcome varchar,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS windlass_edges_on_child_and_job ON windlass_edges (child_job_id, parent_job_id);
-- By the outcome, so that the edges of a parent that are left are found without those that have theirs.
CREATE INDEX IF NOT EXISTS windlass_edges_on_parent_job ON windlass_edges (parent_job_id, outcome) WHERE parent_job_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS windlass_edges_on_parent_batch ON windlass_edges (parent_batch_id, outcome) WHERE parent_batch_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS windlass_edges_on_failed_job ON windlass_edges (parent_job_id) WHERE outcome = 'failed' AND otherwise = 'wait' AND runs_on = 'success';
CREATE INDEX IF NOT EXISTS windlass_edges_on_failed_batch ON windlass_edges (parent_batch_id) WHERE outcome = 'failed' AND otherwise = 'wait' AND runs_on = 'success';

-- Jobs of batches that ended without success. A failure is final if no retry brings the job back into its batch.
CREATE TABLE IF NOT EXISTS windlass_batch_failures (
    job_id bigint PRIMARY KEY NOT NULL,
    batch_id bigint NOT NULL,
    is_final boolean NOT NULL DEFAULT 0,
    created_at datetime(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS windlass_batch_failures_on_batch ON windlass_batch_failures (batch_id, job_id);
CREATE INDEX IF NOT EXISTS windlass_batch_failures_final ON windlass_batch_failures (batch_id) WHERE is_final;

-- Requests to the next promotion: keys of which a transaction has blocked a job or freed a slot. A row without a key
-- has a kind, and names an id or a name, so that no key of a user can be one. Only ever inserted and deleted, so that
-- no transaction that enqueues makes another wait. `failures` is how often the database has refused its promotion,
-- `waiting_since` since when it is known to wait.
CREATE TABLE IF NOT EXISTS windlass_wanted_keys (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    key varchar,
    kind varchar,
    target_id bigint,
    amount bigint,
    name varchar,
    failures integer,
    waiting_since datetime(6)
);
CREATE INDEX IF NOT EXISTS index_windlass_wanted_keys_on_key ON windlass_wanted_keys (key, target_id, name);

------------------------------------------------------------------------------------------------------------------------
-- Classes, limits, quotas and settings
------------------------------------------------------------------------------------------------------------------------

-- The classes that workers perform; each worker writes its own when it starts. `redact` has the fields of their
-- arguments that are secret, as a JSON array of names. `internal`: only the program's own code may enqueue jobs of the
-- class. `quota` is the quota of enqueues by the name of a class, as JSON. `rates` are those of its policy, as a job has them.
CREATE TABLE IF NOT EXISTS windlass_classes (
    class_name varchar PRIMARY KEY NOT NULL,
    queue_name varchar NOT NULL,
    redact text NOT NULL,
    seen_at datetime(6) NOT NULL,
    internal boolean NOT NULL DEFAULT 0,
    quota text,
    priority integer,
    max_attempts integer,
    max_crashes integer,
    at_most_once boolean,
    max_arguments bigint,
    policy text,
    rates text
);

-- The classes of which no worker of Windlass starts a job.
CREATE TABLE IF NOT EXISTS windlass_class_pauses (
    class_name varchar PRIMARY KEY NOT NULL,
    paused_by varchar,
    pause_reason text,
    created_at datetime(6) NOT NULL
);

-- Limits of concurrency keys that were set at run time. `limit_key` is a key, or a group with `/*` for all its keys;
-- `slots` replaces the limit of their jobs.
CREATE TABLE IF NOT EXISTS windlass_limits (
    limit_key varchar PRIMARY KEY NOT NULL,
    slots integer,
    rate_number bigint,
    rate_period bigint,
    rate_burst bigint,
    set_by varchar,
    reason text,
    created_at datetime(6) NOT NULL
);

-- The tokens of each key of a rate: a bucket of at most `burst`, into which `number` come in `period` microseconds. `level`
-- is what it has at `counted_at`, in parts, of which `period` are a token. Times are microseconds since 1970 by the
-- database's clock, less the steps that it has made (the setting `clock_steps`). `closed_until`: nothing starts before.
-- `due_at`: the time of the next look; if jobs wait (`has_waiting`), nothing looks before.
-- `promised`: the jobs that were made ready and have not started, as far as was seen, as JSON: [[since, cost, [id, ...]], ...].
CREATE TABLE IF NOT EXISTS windlass_rates (
    rate_key varchar PRIMARY KEY NOT NULL,
    number bigint NOT NULL,
    period bigint NOT NULL,
    burst bigint NOT NULL,
    level bigint NOT NULL,
    counted_at bigint NOT NULL,
    closed_until bigint,
    due_at bigint,
    has_waiting boolean NOT NULL DEFAULT 0,
    promised text
);
CREATE INDEX IF NOT EXISTS index_windlass_rates_on_due_at ON windlass_rates (due_at) WHERE due_at IS NOT NULL;

-- Lines with several gates: the one that was closed when the line was last looked at, and the first job of the line then.
CREATE TABLE IF NOT EXISTS windlass_lines (
    line varchar PRIMARY KEY NOT NULL,
    gate_kind varchar NOT NULL,
    gate_key varchar NOT NULL,
    priority integer NOT NULL,
    pass bigint NOT NULL DEFAULT 0,
    job_id bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS index_windlass_lines_on_gate ON windlass_lines (gate_kind, gate_key, priority, pass, job_id);

-- The queues whose threads are shared between tenants. `by_time`: by the time that their jobs run, else by their number.
-- `starting_from`: ready executions up to this id may be of jobs that wait for no share yet. `is_ending`: it is shared no
-- more, and the jobs that wait go on. `places`: the jobs that may be ready at once by a share. `promised`: those that are, as
-- far as was seen, as JSON: [[id, ...], ...], one list for each promotion. `recent`: the use of tenants in the last minutes,
-- as JSON: [all, [[tenant, cost], ...]]. `mean`: the mean time of a job, in microseconds. The times are those of
-- windlass_rates: of the last look, of the last start that was seen, and of the next look.
CREATE TABLE IF NOT EXISTS windlass_fair_queues (
    queue_name varchar PRIMARY KEY NOT NULL,
    by_time boolean NOT NULL DEFAULT 0,
    starting_from bigint,
    is_ending boolean NOT NULL DEFAULT 0,
    places bigint NOT NULL DEFAULT 1,
    promised text,
    recent text,
    mean bigint NOT NULL DEFAULT 0,
    looked_at bigint NOT NULL DEFAULT 0,
    moved_at bigint NOT NULL DEFAULT 0,
    due_at bigint,
    created_at datetime(6) NOT NULL
);

-- What tenants have used of a queue, for each priority: `pass` grows by the cost of each job, divided by the weight of its
-- tenant. The tenant with the smallest comes next. While its only line waits, windlass_lines has it alone. One without a row
-- has used as much as those that wait.
CREATE TABLE IF NOT EXISTS windlass_shares (
    queue_name varchar NOT NULL,
    priority integer NOT NULL,
    tenant varchar NOT NULL,
    pass bigint NOT NULL,
    mean bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue_name, tenant, priority)
);
CREATE INDEX IF NOT EXISTS index_windlass_shares_on_pass ON windlass_shares (queue_name, priority, pass);

-- The weights of tenants that have another one than 1.
CREATE TABLE IF NOT EXISTS windlass_tenants (
    queue_name varchar NOT NULL,
    tenant varchar NOT NULL,
    weight integer NOT NULL,
    created_at datetime(6) NOT NULL,
    PRIMARY KEY (queue_name, tenant)
);

-- The places of a quota, for each kind of its limits: enqueues in a day or minute, and jobs that wait. On Postgres
-- they are shared out among up to 1,000 slots: an enqueue takes its places from a slot that no other transaction has
-- locked. SQLite has one slot. `starts_at` is the start of the window in which `jobs` were enqueued; for jobs that
-- wait, the day of the last one. `limits` are the limits of the quota, as the last enqueue that used the slot had
-- them.
CREATE TABLE IF NOT EXISTS windlass_quota_slots (
    quota varchar NOT NULL,
    per varchar NOT NULL,
    slot bigint NOT NULL,
    starts_at datetime(6) NOT NULL,
    jobs bigint NOT NULL,
    limits text NOT NULL,
    PRIMARY KEY (quota, per, slot)
);
CREATE INDEX IF NOT EXISTS index_windlass_quota_slots_on_starts_at ON windlass_quota_slots (starts_at);

-- The jobs of quotas that limit how many wait. Rows of jobs that do not wait are deleted when the quota is used up, and
-- now and then.
CREATE TABLE IF NOT EXISTS windlass_quota_jobs (
    job_id bigint PRIMARY KEY NOT NULL,
    quota varchar NOT NULL,
    slot bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS index_windlass_quota_jobs_on_quota ON windlass_quota_jobs (quota, job_id);

-- Settings that programs in all languages share, as strict_classes: on or off.
CREATE TABLE IF NOT EXISTS windlass_settings (
    name varchar PRIMARY KEY NOT NULL,
    value varchar NOT NULL
);

------------------------------------------------------------------------------------------------------------------------
-- History, audit and the web pages
------------------------------------------------------------------------------------------------------------------------

-- The ends of jobs, as each process has added them up since its heartbeat before, until a supervisor adds them to
-- `windlass_stats`. A row without data was added, and stays for a while: a process may repeat an insert that got no
-- answer.
CREATE TABLE IF NOT EXISTS windlass_stats_deltas (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    source varchar,
    seq bigint,
    created_at datetime(6) NOT NULL,
    data blob
);
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_stats_deltas_on_source ON windlass_stats_deltas (source, seq);
CREATE INDEX IF NOT EXISTS index_windlass_stats_deltas_for_fold ON windlass_stats_deltas (id) WHERE data IS NOT NULL;

-- The series: a queue and a class, a queue with an empty class for several classes, and both empty for everything.
-- `folded_at` of the last one is when something was last added up. An empty queue with a class is a gate for which jobs
-- waited, such as `rate/api`: its buckets have for how long the first job had waited, at each sample that found some.
CREATE TABLE IF NOT EXISTS windlass_stats_series (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    queue_name varchar NOT NULL,
    class_name varchar NOT NULL,
    folded_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_stats_series_on_names ON windlass_stats_series (queue_name, class_name);

-- The buckets of a series, packed: 30 minutes, 24 times ten minutes, or 12 hours in a row. `resolution` is the length
-- of a bucket in seconds, `starts_at` the start of the first one in seconds since 1970. Both are 0 for the total of the
-- series, which only grows.
CREATE TABLE IF NOT EXISTS windlass_stats (
    series_id bigint NOT NULL,
    resolution integer NOT NULL,
    starts_at bigint NOT NULL,
    data blob NOT NULL,
    PRIMARY KEY (series_id, resolution, starts_at)
);

-- The changes that people and programs made, and who made them. `jobs` is how many jobs changed with this row, `total`
-- how many with it and the rows of the same action before it. The first row of an action has its filter, the others
-- name it in `part_of`.
CREATE TABLE IF NOT EXISTS windlass_audit (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    created_at datetime(6) NOT NULL,
    actor varchar NOT NULL,
    via varchar NOT NULL,
    origin varchar,
    action varchar NOT NULL,
    target varchar,
    filter text,
    parameters text,
    jobs bigint,
    total bigint,
    reason text,
    operation_id bigint,
    part_of bigint
);
CREATE INDEX IF NOT EXISTS index_windlass_audit_on_created_at ON windlass_audit (created_at);
CREATE INDEX IF NOT EXISTS index_windlass_audit_on_id ON windlass_audit (id) WHERE part_of IS NULL;
CREATE INDEX IF NOT EXISTS index_windlass_audit_on_actor ON windlass_audit (actor, id) WHERE part_of IS NULL;
CREATE INDEX IF NOT EXISTS index_windlass_audit_on_action ON windlass_audit (action, id) WHERE part_of IS NULL;
CREATE INDEX IF NOT EXISTS index_windlass_audit_on_target ON windlass_audit (target, id) WHERE part_of IS NULL;
CREATE INDEX IF NOT EXISTS index_windlass_audit_on_operation ON windlass_audit (operation_id, id) WHERE part_of IS NULL;
CREATE INDEX IF NOT EXISTS index_windlass_audit_on_part_of ON windlass_audit (part_of, id) WHERE part_of IS NOT NULL;

-- Rows are only added. Retention deletes those that are at least 30 days old. REPLACE deletes without a trigger, so it
-- is refused as an insert.
CREATE TRIGGER IF NOT EXISTS windlass_audit_keep BEFORE UPDATE ON windlass_audit
BEGIN
    SELECT RAISE(ABORT, 'windlass_audit is append-only: its rows are not changed, and not deleted before they are 30 days old');
END;
CREATE TRIGGER IF NOT EXISTS windlass_audit_keep_all BEFORE DELETE ON windlass_audit
WHEN OLD.created_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', '-30 days')
BEGIN
    SELECT RAISE(ABORT, 'windlass_audit is append-only: its rows are not changed, and not deleted before they are 30 days old');
END;
CREATE TRIGGER IF NOT EXISTS windlass_audit_keep_each BEFORE INSERT ON windlass_audit
WHEN EXISTS (SELECT 1 FROM windlass_audit WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass_audit is append-only: its rows are not changed, and not deleted before they are 30 days old');
END;

-- Changes of many jobs, which any process carries on in batches. `bounds` has the executions up to which jobs are
-- selected, `place` how far they were, and `counts` what became of them, all as JSON. `request_id` is the request that
-- started it, by an id that is made with its preview: a request that is repeated does not start another one. NULL for
-- operations that were started without a preview on a page.
CREATE TABLE IF NOT EXISTS windlass_operations (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    action varchar NOT NULL,
    parameters text NOT NULL,
    filter text NOT NULL,
    bounds text NOT NULL,
    place text NOT NULL,
    counts text NOT NULL,
    total bigint,
    total_is_exact boolean NOT NULL,
    looked_at bigint NOT NULL DEFAULT 0,
    changed bigint NOT NULL DEFAULT 0,
    state varchar NOT NULL,
    error text,
    actor varchar NOT NULL,
    via varchar NOT NULL,
    origin varchar,
    reason text,
    audit_id bigint,
    created_at datetime(6) NOT NULL,
    started_at datetime(6),
    moved_at datetime(6) NOT NULL,
    ended_at datetime(6),
    request_id varchar
);
CREATE INDEX IF NOT EXISTS index_windlass_operations_on_open ON windlass_operations (id) WHERE ended_at IS NULL;
CREATE INDEX IF NOT EXISTS index_windlass_operations_on_ended_at ON windlass_operations (ended_at) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_operations_on_request_id ON windlass_operations (request_id) WHERE request_id IS NOT NULL;

-- The tokens of `windlass web`. `digest` is the SHA-256 of a token, in hexadecimal, and `lookup` its first 16 digits;
-- the token itself is stored nowhere. `role`: viewer, operator or enqueuer. `limits` is JSON: what an enqueuer may
-- enqueue.
CREATE TABLE IF NOT EXISTS windlass_web_tokens (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    name varchar NOT NULL,
    role varchar NOT NULL,
    lookup varchar NOT NULL,
    digest varchar NOT NULL,
    limits text,
    created_by varchar,
    created_at datetime(6) NOT NULL,
    last_used_at datetime(6),
    expires_at datetime(6),
    revoked_at datetime(6)
);
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_web_tokens_on_lookup ON windlass_web_tokens (lookup);

-- The sessions of those who are signed in, each with its token. `digest` and `lookup` are those of the secret in the
-- session's cookie.
CREATE TABLE IF NOT EXISTS windlass_web_sessions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    token_id bigint NOT NULL,
    lookup varchar NOT NULL,
    digest varchar NOT NULL,
    origin varchar,
    created_at datetime(6) NOT NULL,
    seen_at datetime(6) NOT NULL,
    expires_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_web_sessions_on_lookup ON windlass_web_sessions (lookup);
CREATE INDEX IF NOT EXISTS index_windlass_web_sessions_on_token_id ON windlass_web_sessions (token_id);

------------------------------------------------------------------------------------------------------------------------
-- Triggers, which heed the changes of every program
------------------------------------------------------------------------------------------------------------------------

-- Whichever program ends a job of a batch, the next promotion looks whether the batch is over.
CREATE TRIGGER IF NOT EXISTS windlass_batch_left AFTER DELETE ON solid_queue_batch_executions
WHEN NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key IS NULL AND w.target_id = OLD.batch_id AND w.kind = 'batch' AND w.amount IS NULL)
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('batch', OLD.batch_id);
END;

-- Whichever program ends a job for which others wait, the next promotion looks what waited for it.
CREATE TRIGGER IF NOT EXISTS windlass_parent_finished AFTER UPDATE OF finished_at ON solid_queue_jobs
WHEN NEW.has_dependents AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('ended', NEW.id);
END;

CREATE TRIGGER IF NOT EXISTS windlass_parent_deleted AFTER DELETE ON solid_queue_jobs
WHEN OLD.has_dependents AND OLD.finished_at IS NULL
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('ended', OLD.id);
END;

CREATE TRIGGER IF NOT EXISTS windlass_parent_failed AFTER INSERT ON solid_queue_failed_executions
WHEN (SELECT has_dependents FROM solid_queue_jobs WHERE id = NEW.job_id)
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('ended', NEW.job_id);
END;

-- A failed job of a batch that is deleted is not retried any more: the next promotion looks what waited for that.
CREATE TRIGGER IF NOT EXISTS windlass_failure_deleted AFTER DELETE ON solid_queue_jobs
WHEN OLD.batch_id IS NOT NULL AND OLD.finished_at IS NULL
BEGIN
    UPDATE windlass_batch_failures SET is_final = true WHERE job_id = OLD.id;
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'batch', f.batch_id FROM windlass_batch_failures f
    WHERE f.job_id = OLD.id AND NOT EXISTS
            (SELECT 1 FROM windlass_wanted_keys w WHERE w.key IS NULL AND w.target_id = f.batch_id AND w.kind = 'batch' AND w.amount IS NULL)
        AND EXISTS (SELECT 1 FROM windlass_edges w WHERE w.parent_batch_id = f.batch_id AND w.otherwise = 'wait');
END;

------------------------------------------------------------------------------------------------------------------------
-- Enqueues by SQL
------------------------------------------------------------------------------------------------------------------------

-- For programs in any language, in the caller's own transaction: a row inserted into the view
-- windlass_enqueue is a job, and one inserted into windlass_enqueue_many is a list of jobs of one class. Both follow the
-- rules of Rust's enqueue. What a name with _v2 means will not change.
--
-- SQLite returns nothing from such an insert: a job is found by its unique id or idempotency key.
--
-- From here on, this file is made of tests/internal/enqueue_by_sql/sqlite.sql and the constants of Rust: a test
-- compares them.

CREATE VIEW IF NOT EXISTS windlass_enqueue_v2 AS SELECT NULL AS class, NULL AS arguments, NULL AS queue, NULL AS priority, NULL AS run_at, NULL AS delay_seconds, NULL AS unique_id, NULL AS unique_scope, NULL AS on_conflict, NULL AS idempotency_key, NULL AS concurrency_key, NULL AS concurrency_group, NULL AS concurrency_limit, NULL AS concurrency_on_conflict, NULL AS max_attempts, NULL AS max_crashes, NULL AS at_most_once, NULL AS traceparent, NULL AS tags, NULL AS meta, NULL AS version, NULL AS timeout_seconds, NULL AS backoff_seconds, NULL AS backoff_cap_seconds, NULL AS expires_in_seconds, NULL AS not_after, NULL AS retry_for_seconds, NULL AS keep_result_seconds, NULL AS tenant, NULL AS batch_id, NULL AS after_batch, NULL AS runs_on, NULL AS rates, NULL AS id, NULL AS outcome WHERE false;

CREATE VIEW IF NOT EXISTS windlass_enqueue AS SELECT * FROM windlass_enqueue_v2;

CREATE VIEW IF NOT EXISTS windlass_enqueue_many_v2 AS SELECT NULL AS class, NULL AS jobs WHERE false;

CREATE VIEW IF NOT EXISTS windlass_enqueue_many AS SELECT * FROM windlass_enqueue_many_v2;

-- What follows is called by the triggers alone: an insert into one of these views is a call of its trigger.
CREATE VIEW IF NOT EXISTS windlass_named_job_v2 AS SELECT NULL AS class, NULL AS queue, NULL AS arguments, NULL AS priority, NULL AS due_at, NULL AS delay, NULL AS unique_id, NULL AS unique_scope, NULL AS on_conflict, NULL AS idempotency_key, NULL AS concurrency_key, NULL AS concurrency_slots, NULL AS concurrency_conflict, NULL AS max_attempts, NULL AS max_crashes, NULL AS at_most_once, NULL AS traceparent, NULL AS policy, NULL AS tenant, NULL AS batch_id, NULL AS after_batch, NULL AS runs_on, NULL AS rates,
    NULL AS known, NULL AS holds, NULL AS holder, NULL AS place WHERE false;

CREATE VIEW IF NOT EXISTS windlass_place_job_v2 AS SELECT NULL AS id, NULL AS is_behind, NULL AS after_batch, NULL AS runs_on WHERE false;

CREATE VIEW IF NOT EXISTS windlass_place_jobs_v2 AS SELECT NULL AS after_id, NULL AS up_to WHERE false;

CREATE VIEW IF NOT EXISTS windlass_take_places_v2 AS SELECT NULL AS job_id, NULL AS quota, NULL AS limits WHERE false;

-- Takes places for a new job in the quota of its class, as Rust does. One that exceeds the quota is refused, also where Rust
-- would discard it.
CREATE TRIGGER IF NOT EXISTS windlass_take_places_v2_insert INSTEAD OF INSERT ON windlass_take_places_v2
BEGIN
    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
    SELECT NEW.quota, 'day', 0, strftime('%Y-%m-%d 00:00:00.000000', 'now'), 0, NEW.limits WHERE NEW.limits ->> '$.per_day' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'day' AND slot = 0 AND NEW.limits ->> '$.per_day' IS NOT NULL);
    SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more enqueues per day; try again later')
    FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'day' AND slot = 0 AND NEW.limits ->> '$.per_day' IS NOT NULL AND CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-86400000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1 > NEW.limits ->> '$.per_day';
    UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-86400000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1, starts_at = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-86400000000 / 1000000.0) || ' seconds') THEN starts_at ELSE strftime('%Y-%m-%d 00:00:00.000000', 'now') END, limits = NEW.limits WHERE quota = NEW.quota AND per = 'day' AND slot = 0 AND NEW.limits ->> '$.per_day' IS NOT NULL;
    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
    SELECT NEW.quota, 'minute', 0, strftime('%Y-%m-%d %H:%M:00.000000', 'now'), 0, NEW.limits WHERE NEW.limits ->> '$.per_minute' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'minute' AND slot = 0 AND NEW.limits ->> '$.per_minute' IS NOT NULL);
    SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more enqueues per minute; try again later')
    FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'minute' AND slot = 0 AND NEW.limits ->> '$.per_minute' IS NOT NULL AND CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-60000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1 > NEW.limits ->> '$.per_minute';
    UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-60000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1, starts_at = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-60000000 / 1000000.0) || ' seconds') THEN starts_at ELSE strftime('%Y-%m-%d %H:%M:00.000000', 'now') END, limits = NEW.limits WHERE quota = NEW.quota AND per = 'minute' AND slot = 0 AND NEW.limits ->> '$.per_minute' IS NOT NULL;
    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
    SELECT NEW.quota, 'second', 0, strftime('%Y-%m-%d %H:%M:%S.000000', 'now'), 0, NEW.limits WHERE NEW.limits ->> '$.per_second' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'second' AND slot = 0 AND NEW.limits ->> '$.per_second' IS NOT NULL);
    SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more enqueues per second; try again later')
    FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'second' AND slot = 0 AND NEW.limits ->> '$.per_second' IS NOT NULL AND CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-1000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1 > NEW.limits ->> '$.per_second';
    UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-1000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1, starts_at = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-1000000 / 1000000.0) || ' seconds') THEN starts_at ELSE strftime('%Y-%m-%d %H:%M:%S.000000', 'now') END, limits = NEW.limits WHERE quota = NEW.quota AND per = 'second' AND slot = 0 AND NEW.limits ->> '$.per_second' IS NOT NULL;
    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
    SELECT NEW.quota, 'waiting', 0, strftime('%Y-%m-%d 00:00:00.000000', 'now'), 0, NEW.limits WHERE NEW.limits ->> '$.waiting' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL);
    DELETE FROM windlass_quota_jobs WHERE quota = NEW.quota AND EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL AND jobs + 1 > NEW.limits ->> '$.waiting')
    AND NOT EXISTS (SELECT 1 FROM solid_queue_ready_executions AS e WHERE e.job_id = windlass_quota_jobs.job_id) AND NOT EXISTS (SELECT 1 FROM solid_queue_scheduled_executions AS e WHERE e.job_id = windlass_quota_jobs.job_id) AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions AS e WHERE e.job_id = windlass_quota_jobs.job_id);
    UPDATE windlass_quota_slots SET jobs = (SELECT count(*) FROM windlass_quota_jobs WHERE quota = NEW.quota) WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL AND jobs + 1 > NEW.limits ->> '$.waiting';
    SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more waiting jobs; try again later')
    FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL AND CASE WHEN starts_at > '' THEN jobs ELSE 0 END + 1 > NEW.limits ->> '$.waiting';
    UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > '' THEN jobs ELSE 0 END + 1, starts_at = strftime('%Y-%m-%d 00:00:00.000000', 'now'), limits = NEW.limits WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL;
    INSERT INTO windlass_quota_jobs (job_id, quota, slot) SELECT NEW.job_id, NEW.quota, 0 WHERE NEW.limits ->> '$.waiting' IS NOT NULL;
END;

CREATE TRIGGER IF NOT EXISTS windlass_enqueue_v2_insert INSTEAD OF INSERT ON windlass_enqueue_v2
BEGIN
    SELECT CASE
        WHEN NEW.class IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is missing')
        WHEN typeof(NEW.class) NOT IN ('null', 'text') OR length(CAST(NEW.class AS blob)) NOT BETWEEN 1 AND 255 OR NEW.class GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(NEW.class, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`')
        WHEN typeof(NEW.queue) NOT IN ('null', 'text') OR length(CAST(NEW.queue AS blob)) NOT BETWEEN 1 AND 255 OR NEW.queue GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(NEW.queue, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`')
        WHEN typeof(NEW.priority) NOT IN ('null', 'integer') OR NEW.priority NOT BETWEEN -2147483648 AND 2147483647
        THEN RAISE(ABORT, 'cannot enqueue the job: its priority must be an integer of 32 bits')
        WHEN typeof(NEW.arguments) NOT IN ('null', 'text') OR coalesce(length(CAST(NEW.arguments AS blob)), 0) + coalesce(length(CAST(NEW.tags AS blob)) + 9, 0) + coalesce(length(CAST(NEW.meta AS blob)) + 9, 0) > coalesce((SELECT known.max_arguments FROM windlass_classes AS known WHERE known.class_name = NEW.class), 65536)
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference')
        WHEN NEW.arguments IS NOT NULL AND NOT json_valid(NEW.arguments)
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are not JSON')
        WHEN instr(NEW.arguments, char(0)) > 0 OR instr(replace(NEW.arguments, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(NEW.arguments) - length(replace(replace(NEW.arguments, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT NEW.arguments, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN NEW.arguments GLOB '*\u[dD][89a-fA-F]*' AND (replace(NEW.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(NEW.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(NEW.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(NEW.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a text has half of a surrogate pair')
        WHEN (NEW.arguments GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR NEW.arguments GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(NEW.arguments) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN coalesce(NEW.run_at, NEW.delay_seconds, NEW.unique_id, NEW.unique_scope, NEW.on_conflict, NEW.idempotency_key, NEW.concurrency_key, NEW.concurrency_group, NEW.concurrency_limit, NEW.concurrency_on_conflict, NEW.max_attempts, NEW.max_crashes, NEW.at_most_once, NEW.traceparent, NEW.tags, NEW.meta, NEW.version, NEW.timeout_seconds, NEW.backoff_seconds, NEW.backoff_cap_seconds, NEW.expires_in_seconds, NEW.not_after, NEW.retry_for_seconds, NEW.keep_result_seconds, NEW.tenant, NEW.batch_id, NEW.after_batch, NEW.runs_on, NEW.rates) IS NULL THEN NULL
        WHEN typeof(NEW.idempotency_key) NOT IN ('null', 'text') OR length(CAST(NEW.idempotency_key AS blob)) NOT BETWEEN 1 AND 255 OR instr(NEW.idempotency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its idempotency_key must have 1 to 255 bytes and no NUL')
        WHEN typeof(NEW.unique_id) NOT IN ('null', 'text') OR length(CAST(NEW.unique_id AS blob)) NOT BETWEEN 1 AND 255 OR instr(NEW.unique_id, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_id must have 1 to 255 bytes and no NUL')
        WHEN NEW.unique_scope NOT IN ('while_waiting', 'until_finished', 'until_result_expires')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_scope must be one of while_waiting, until_finished, until_result_expires')
        WHEN NEW.on_conflict NOT IN ('existing', 'refuse', 'replace', 'run_again')
        THEN RAISE(ABORT, 'cannot enqueue the job: its on_conflict must be one of existing, refuse, replace, run_again')
        WHEN NEW.concurrency_on_conflict NOT IN ('block', 'discard', 'ordered')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_on_conflict must be one of block, discard, ordered')
        WHEN typeof(NEW.concurrency_key) NOT IN ('null', 'text') OR typeof(NEW.concurrency_group) NOT IN ('null', 'text') OR NEW.concurrency_key = '' OR NEW.concurrency_group = '' OR length(CAST(coalesce(NEW.concurrency_group, NEW.class) || '/' || NEW.concurrency_key AS blob)) > 255 OR instr(coalesce(NEW.concurrency_group, NEW.class) || '/' || NEW.concurrency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key and concurrency_group must not be empty, have at most 255 bytes together, and no NUL')
        WHEN NEW.concurrency_key IS NULL AND (NEW.concurrency_limit IS NOT NULL OR NEW.concurrency_group IS NOT NULL OR NEW.concurrency_on_conflict IS NOT NULL)
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key is missing, without which there is no limit')
        WHEN typeof(NEW.concurrency_limit) NOT IN ('null', 'integer') OR NEW.concurrency_limit < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_limit must be 1 or more; pause its queue to stop its jobs')
        WHEN NEW.concurrency_on_conflict = 'ordered' AND NEW.concurrency_limit <> 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency key is ordered, so its concurrency_limit must be 1')
        WHEN NEW.run_at IS NOT NULL AND NEW.delay_seconds IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it has both run_at and delay_seconds; choose one')
        WHEN NEW.run_at IS NOT NULL AND (typeof(NEW.run_at) <> 'text' OR NEW.run_at NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' OR date(substr(NEW.run_at, 1, 10), '+0 days') IS NOT substr(NEW.run_at, 1, 10) OR datetime(NEW.run_at) IS NULL OR datetime(NEW.run_at) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr(NEW.run_at, 12, 2) = '24' OR instr(NEW.run_at, char(0)) > 0 OR (length(NEW.run_at) > 10 AND substr(NEW.run_at, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') OR NOT (ltrim(substr(NEW.run_at, 12), '0123456789:.') IN ('', 'Z') OR ltrim(substr(NEW.run_at, 12), '0123456789:.') GLOB '[+-][0-9][0-9]:[0-9][0-9]'))
        THEN RAISE(ABORT, 'cannot enqueue the job: its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z')
        WHEN typeof(NEW.delay_seconds) NOT IN ('null', 'integer', 'real') OR NOT (NEW.delay_seconds >= 0 AND NEW.delay_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its delay_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(NEW.max_attempts) NOT IN ('null', 'integer') OR NEW.max_attempts < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_attempts must be an integer, 1 or more')
        WHEN typeof(NEW.max_crashes) NOT IN ('null', 'integer') OR NEW.max_crashes < 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_crashes must be an integer, 0 or more')
        WHEN typeof(NEW.version) NOT IN ('null', 'integer') OR NEW.version < 1 OR NEW.version > 4294967295
        THEN RAISE(ABORT, 'cannot enqueue the job: its version must be an integer, 1 or more and at most 4294967295')
        WHEN NEW.at_most_once NOT IN (0, 1)
        THEN RAISE(ABORT, 'cannot enqueue the job: its at_most_once must be true or false')
        WHEN coalesce(NEW.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class)) AND NEW.max_attempts > 1
        THEN RAISE(ABORT, 'cannot enqueue the job: it has at-most-once delivery and more than one attempt; choose one')
        WHEN typeof(NEW.traceparent) NOT IN ('null', 'text') OR instr(NEW.traceparent, char(0)) > 0 OR length(CAST(NEW.traceparent AS blob)) > 255 OR substr(NEW.traceparent, 4, 32) = '00000000000000000000000000000000' OR substr(NEW.traceparent, 37, 16) = '0000000000000000' OR NEW.traceparent GLOB 'ff*' OR (NEW.traceparent GLOB '00*' AND length(NEW.traceparent) <> 55) OR (NEW.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]' AND NEW.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]-*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its traceparent is not one of W3C Trace Context; pass the header as it is, `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits')
        WHEN typeof(NEW.tags) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags must be JSON text')
        WHEN NEW.tags IS NOT NULL AND NOT json_valid(NEW.tags)
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags are not JSON')
        WHEN instr(NEW.tags, char(0)) > 0 OR instr(replace(NEW.tags, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(NEW.tags) - length(replace(replace(NEW.tags, '[', ''), '{', '')) > 119 AND ( WITH RECURSIVE level (value, depth) AS (SELECT NEW.tags, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 119) SELECT max(depth) FROM level) > 119
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags are nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN NEW.tags GLOB '*\u[dD][89a-fA-F]*' AND (replace(NEW.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(NEW.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(NEW.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(NEW.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(NEW.tags, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.tags, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.tags, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.tags, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(NEW.tags, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(NEW.tags, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags could not be read again: a text has half of a surrogate pair')
        WHEN (NEW.tags GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR NEW.tags GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(NEW.tags) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN typeof(NEW.meta) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta must be JSON text')
        WHEN NEW.meta IS NOT NULL AND NOT json_valid(NEW.meta)
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta is not JSON')
        WHEN instr(NEW.meta, char(0)) > 0 OR instr(replace(NEW.meta, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta contains a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(NEW.meta) - length(replace(replace(NEW.meta, '[', ''), '{', '')) > 119 AND ( WITH RECURSIVE level (value, depth) AS (SELECT NEW.meta, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 119) SELECT max(depth) FROM level) > 119
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta is nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN NEW.meta GLOB '*\u[dD][89a-fA-F]*' AND (replace(NEW.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(NEW.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(NEW.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(NEW.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(NEW.meta, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.meta, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.meta, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.meta, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(NEW.meta, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(NEW.meta, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta could not be read again: a text has half of a surrogate pair')
        WHEN (NEW.meta GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR NEW.meta GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(NEW.meta) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN json_type(NEW.tags) <> 'array' OR (SELECT count(DISTINCT tag.value) > 32 OR max(tag.type <> 'text' OR length(CAST(tag.value AS blob)) NOT BETWEEN 1 AND 100) FROM json_each(NEW.tags) AS tag)
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags must be a JSON array of at most 32 texts, each of 1 to 100 bytes and without NUL')
        WHEN json_type(NEW.meta) <> 'object' OR (SELECT count(DISTINCT part.key) > 32 OR count(*) <> count(DISTINCT part.key) OR max(length(CAST(part.key AS blob)) NOT BETWEEN 1 AND 100) FROM json_each(NEW.meta) AS part)
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta must be a JSON object of at most 32 keys, each of 1 to 100 bytes and without NUL')
        WHEN typeof(NEW.timeout_seconds) NOT IN ('null', 'integer', 'real') OR NOT (NEW.timeout_seconds >= 0 AND NEW.timeout_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its timeout_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(NEW.keep_result_seconds) NOT IN ('null', 'integer', 'real') OR NOT (NEW.keep_result_seconds >= 0 AND NEW.keep_result_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its keep_result_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(NEW.backoff_seconds) NOT IN ('null', 'integer', 'real') OR NOT (NEW.backoff_seconds >= 0 AND NEW.backoff_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(NEW.backoff_cap_seconds) NOT IN ('null', 'integer', 'real') OR NOT (NEW.backoff_cap_seconds >= 0 AND NEW.backoff_cap_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_cap_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(NEW.expires_in_seconds) NOT IN ('null', 'integer', 'real') OR NOT (NEW.expires_in_seconds > 0 AND NEW.expires_in_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its expires_in_seconds must be above 0, and at most 1000 years')
        WHEN typeof(NEW.retry_for_seconds) NOT IN ('null', 'integer', 'real') OR NOT (NEW.retry_for_seconds > 0 AND NEW.retry_for_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its retry_for_seconds must be above 0, and at most 1000 years')
        WHEN NEW.backoff_cap_seconds IS NOT NULL AND NEW.backoff_seconds IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_seconds is missing, the first delay, without which there is no cap')
        WHEN NEW.not_after IS NOT NULL AND NEW.expires_in_seconds IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it has both not_after and expires_in_seconds; choose one')
        WHEN NEW.not_after IS NOT NULL AND (typeof(NEW.not_after) <> 'text' OR NEW.not_after NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' OR date(substr(NEW.not_after, 1, 10), '+0 days') IS NOT substr(NEW.not_after, 1, 10) OR datetime(NEW.not_after) IS NULL OR datetime(NEW.not_after) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr(NEW.not_after, 12, 2) = '24' OR instr(NEW.not_after, char(0)) > 0 OR (length(NEW.not_after) > 10 AND substr(NEW.not_after, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') OR NOT (ltrim(substr(NEW.not_after, 12), '0123456789:.') IN ('', 'Z') OR ltrim(substr(NEW.not_after, 12), '0123456789:.') GLOB '[+-][0-9][0-9]:[0-9][0-9]'))
        THEN RAISE(ABORT, 'cannot enqueue the job: its not_after must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z')
        WHEN julianday(NEW.not_after) <= julianday(NEW.run_at)
        THEN RAISE(ABORT, 'cannot enqueue the job: it would expire before it is due: its not_after is not behind its run_at')
        WHEN typeof(NEW.tenant) NOT IN ('null', 'text') OR length(CAST(NEW.tenant AS blob)) NOT BETWEEN 1 AND 255 OR instr(NEW.tenant, char(0)) > 0 OR NEW.tenant GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        THEN RAISE(ABORT, 'cannot enqueue the job: its tenant must have 1 to 255 bytes and no control character')
        WHEN NEW.runs_on NOT IN ('success', 'failure', 'finish')
        THEN RAISE(ABORT, 'cannot enqueue the job: its runs_on must be one of success, failure, finish')
        WHEN NEW.runs_on IS NOT NULL AND NEW.after_batch IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its after_batch is missing, whose outcome its runs_on names')
        WHEN NEW.after_batch IS NOT NULL AND NEW.unique_id IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it waits for a batch, and cannot have a unique_id')
        WHEN NEW.after_batch = NEW.batch_id
        THEN RAISE(ABORT, 'cannot enqueue the job: it waits for its own batch, which could not end')
        WHEN NEW.batch_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = NEW.batch_id AND b.active_job_batch_id LIKE 'windlass-%')
        THEN RAISE(ABORT, 'cannot enqueue the job: there is no batch of its batch_id')
        WHEN NEW.after_batch IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = NEW.after_batch AND b.active_job_batch_id LIKE 'windlass-%')
        THEN RAISE(ABORT, 'cannot enqueue the job: there is no batch of its after_batch')
        WHEN EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = NEW.batch_id AND b.finished_at IS NOT NULL AND NOT (SELECT e.job_id FROM solid_queue_batch_executions e WHERE e.batch_id = b.id ORDER BY e.job_id DESC LIMIT 1) IS NOT NULL)
        THEN RAISE(ABORT, 'cannot enqueue the job: the batch of its batch_id is over')
        WHEN typeof(NEW.rates) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates must be JSON text')
        WHEN NEW.rates IS NOT NULL AND NOT json_valid(NEW.rates)
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates are not JSON')
        WHEN instr(NEW.rates, char(0)) > 0 OR instr(replace(NEW.rates, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(NEW.rates) - length(replace(replace(NEW.rates, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT NEW.rates, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN NEW.rates GLOB '*\u[dD][89a-fA-F]*' AND (replace(NEW.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(NEW.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(NEW.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(NEW.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(NEW.rates, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.rates, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.rates, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.rates, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(NEW.rates, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(NEW.rates, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates could not be read again: a text has half of a surrogate pair')
        WHEN (NEW.rates GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR NEW.rates GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(NEW.rates) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN json_type(NEW.rates) <> 'array' OR json_array_length(NEW.rates) > 4 OR (SELECT max(CASE WHEN rate.type <> 'object' THEN 1 ELSE (SELECT count(*) <> count(DISTINCT part.key) OR max(part.key NOT IN ('number', 'period', 'burst', 'key', 'cost')) FROM json_each(rate.value) AS part) END) FROM json_each(NEW.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates must be a JSON array of at most 4 objects, each with a number and a period, and maybe with a burst, a key and a cost')
        WHEN (SELECT max(coalesce(json_type(rate.value, '$.key'), 'null') NOT IN ('text', 'null') OR length(CAST(rate.value ->> '$.key' AS blob)) NOT BETWEEN 1 AND 255 OR rate.value ->> '$.key' GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*') FROM json_each(NEW.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the key of its rate must have 1 to 255 bytes and no control character')
        WHEN (SELECT max(CASE json_type(rate.value, '$.period') WHEN 'text' THEN rate.value ->> '$.period' NOT IN ('second', 'minute', 'hour', 'day') WHEN 'integer' THEN rate.value ->> '$.period' NOT BETWEEN 1 AND 86400000000 ELSE 1 END) FROM json_each(NEW.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the period of its rate must be second, minute, hour or day, or an integer of microseconds from 1 to 86400000000')
        WHEN (SELECT max(coalesce(json_type(rate.value, '$.number'), 'null') NOT IN ('integer') OR rate.value ->> '$.number' NOT BETWEEN 1 AND 10000000 OR coalesce(json_type(rate.value, '$.burst'), 'null') NOT IN ('integer', 'null') OR rate.value ->> '$.burst' NOT BETWEEN 1 AND 10000000 OR coalesce(json_type(rate.value, '$.cost'), 'null') NOT IN ('integer', 'null') OR rate.value ->> '$.cost' NOT BETWEEN 1 AND 10000000 OR coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END))) > 10000000) FROM json_each(NEW.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the number, the burst and the cost of its rate must be integers from 1 to 10000000, and so must the burst that its number makes')
        WHEN (SELECT max(rate.value ->> '$.cost' > coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END)))) FROM json_each(NEW.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: it costs more starts than the burst of its rate, so it could never start; raise the burst, or split the job')
        WHEN (SELECT count(*) <> count(DISTINCT coalesce(rate.value ->> '$.key', NEW.class)) FROM json_each(NEW.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: two of its rates have the same key') END;
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND internal)
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is internal, so only its program''s own code enqueues it')
        WHEN EXISTS (SELECT 1 FROM windlass_settings WHERE name = 'strict_classes' AND value = 'on') AND NOT EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class)
        THEN RAISE(ABORT, 'cannot enqueue the job: no worker has stored its class, and strict_classes is on; start a worker that performs it, or correct the name') END;
    INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, rates, gate, created_at, updated_at) SELECT coalesce(NEW.queue, (SELECT known.queue_name FROM windlass_classes AS known WHERE known.class_name = NEW.class), 'default'), NEW.class, coalesce(NEW.arguments, 'null'), coalesce(NEW.priority, (SELECT known.priority FROM windlass_classes AS known WHERE known.class_name = NEW.class), 0), coalesce(CASE WHEN NEW.max_attempts < 2147483647 THEN NEW.max_attempts WHEN NEW.max_attempts IS NOT NULL THEN 2147483647 END, CASE WHEN NOT coalesce(NEW.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class), 0) THEN (SELECT known.max_attempts FROM windlass_classes AS known WHERE known.class_name = NEW.class) END), coalesce(CASE WHEN NEW.max_crashes < 2147483647 THEN NEW.max_crashes WHEN NEW.max_crashes IS NOT NULL THEN 2147483647 END, (SELECT known.max_crashes FROM windlass_classes AS known WHERE known.class_name = NEW.class)), coalesce(NEW.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.delivery') IS NOT NULL), CASE WHEN coalesce(NEW.unique_scope, NEW.tags, NEW.meta, NEW.version, NEW.timeout_seconds, NEW.backoff_seconds, NEW.backoff_cap_seconds, NEW.expires_in_seconds, NEW.not_after, NEW.retry_for_seconds, NEW.keep_result_seconds, NEW.at_most_once) IS NULL THEN (SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) ELSE nullif('{' || substr(coalesce(',"delivery":' || CASE WHEN NEW.at_most_once IS NULL THEN ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.delivery') END, '') || coalesce(',"backoff":' || coalesce(CASE WHEN NEW.backoff_cap_seconds IS NULL THEN '{"fixed":' || CAST((CAST(CASE WHEN NEW.backoff_seconds > 0 AND NEW.backoff_seconds < 0.000001 THEN 1 ELSE round(NEW.backoff_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}' ELSE '{"exponential":{"first":' || CAST((CAST(CASE WHEN NEW.backoff_seconds > 0 AND NEW.backoff_seconds < 0.000001 THEN 1 ELSE round(NEW.backoff_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || ',"cap":' || CAST((CAST(CASE WHEN NEW.backoff_cap_seconds > 0 AND NEW.backoff_cap_seconds < 0.000001 THEN 1 ELSE round(NEW.backoff_cap_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}}' END, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.backoff')), '') || coalesce(',"on_failure":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.on_failure'), '') || coalesce(',"keep_finished":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.keep_finished'), '') || coalesce(',"keep_result":' || coalesce(CAST((CAST(CASE WHEN NEW.keep_result_seconds > 0 AND NEW.keep_result_seconds < 0.000001 THEN 1 ELSE round(NEW.keep_result_seconds * 1000000) END AS integer) + 999) / 1000 AS text), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.keep_result')), '') || coalesce(',"unique_scope":' || coalesce('"' || NEW.unique_scope || '"', ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.unique_scope')), '') || coalesce(',"timeout":' || coalesce(CAST((CAST(CASE WHEN NEW.timeout_seconds > 0 AND NEW.timeout_seconds < 0.000001 THEN 1 ELSE round(NEW.timeout_seconds * 1000000) END AS integer) + 999) / 1000 AS text), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.timeout')), '') || coalesce(',"timeout_grace":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.timeout_grace'), '') || coalesce(',"on_timeout":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.on_timeout'), '') || coalesce(',"expiry":' || coalesce(coalesce('{"in":' || CAST((CAST(CASE WHEN NEW.expires_in_seconds > 0 AND NEW.expires_in_seconds < 0.000001 THEN 1 ELSE round(NEW.expires_in_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}', '{"at":' || '"' || CASE WHEN CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END LIKE '%.000000' THEN substr(replace(CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T'), 1, 19) WHEN CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END LIKE '%000' THEN substr(replace(CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T'), 1, 23) ELSE replace(CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T') END || 'Z' || '"' || '}'), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.expiry')), '') || coalesce(',"retry_limit":' || coalesce('{"for":' || CAST((CAST(CASE WHEN NEW.retry_for_seconds > 0 AND NEW.retry_for_seconds < 0.000001 THEN 1 ELSE round(NEW.retry_for_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}', ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.retry_limit')), '') || coalesce(',"propagation_style":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.propagation_style'), '') || coalesce(',"extras":' || CASE WHEN coalesce(NEW.tags, NEW.meta, NEW.version) IS NULL THEN ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') ELSE nullif('{' || substr(coalesce(',"tags":' || nullif((SELECT json_group_array(value) FROM (SELECT value, min(place * 100 + key) FROM (SELECT key, value, type, fullkey, 0 AS place, NEW.tags AS whole FROM json_each(coalesce(NEW.tags, '[]')) UNION ALL SELECT key, value, type, fullkey, 1, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.tags' FROM json_each(coalesce(((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.tags', '[]'))) GROUP BY value ORDER BY 2)), '[]'), '') || coalesce(',"meta":' || nullif((SELECT json_group_object(key, json(part)) FROM (SELECT key, CASE WHEN type IN ('object', 'array') THEN value WHEN type IN ('true', 'false') THEN type ELSE coalesce(whole -> fullkey, json_quote(value)) END AS part, min(place) FROM (SELECT key, value, type, fullkey, 0 AS place, NEW.meta AS whole FROM json_each(coalesce(NEW.meta, '{}')) UNION ALL SELECT key, value, type, fullkey, 1, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.meta' FROM json_each(coalesce(((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.meta', '{}'))) GROUP BY key ORDER BY key)), '{}'), '') || CASE WHEN NEW.version <> 1 THEN ',"version":' || NEW.version ELSE '' END, 2) || '}', '{}') END, ''), 2) || '}', '{}') END, NEW.traceparent, NEW.tenant, NEW.batch_id, NULL, coalesce(CASE WHEN instr(NEW.run_at, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.run_at) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.run_at, 1, instr(NEW.run_at, '.') - 1) || ltrim(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), 1, length(substr(NEW.run_at, instr(NEW.run_at, '.') + 1)) - length(ltrim(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), '0123456789'))) || '000000', 1, 6) END, strftime('%Y-%m-%d %H:%M:%f000', 'now', (CAST(round(NEW.delay_seconds * 1000000) AS integer) / 1000000.0) || ' seconds')), CASE WHEN NEW.rates IS NULL THEN (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class) ELSE (SELECT '[' || group_concat('{"key":' || json_quote(coalesce((rate.value ->> '$.key'), NEW.class)) || ',"number":' || (rate.value ->> '$.number') || ',"period":' || CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END || ',"burst":' || coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END))) || CASE WHEN (rate.value ->> '$.cost') > 1 THEN ',"cost":' || (rate.value ->> '$.cost') ELSE '' END || '}') || ']' FROM json_each(NEW.rates) AS rate) END, CASE WHEN NEW.tenant IS NULL THEN (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(NEW.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate) ELSE coalesce((SELECT char(29) || fair.queue_name || char(28) || NEW.tenant FROM windlass_fair_queues AS fair WHERE fair.queue_name = coalesce(NEW.queue, (SELECT known.queue_name FROM windlass_classes AS known WHERE known.class_name = NEW.class), 'default') AND NOT fair.is_ending) || coalesce(char(31) || (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(NEW.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate), ''), (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(NEW.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate)) END, strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    SELECT CASE WHEN NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL AND changes() = 0
        THEN RAISE(ABORT, 'cannot enqueue the job: a trigger of solid_queue_jobs ignores it') END;
    INSERT INTO windlass_place_job_v2 SELECT last_insert_rowid(), NULL, NEW.after_batch, NEW.runs_on
    WHERE NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    INSERT INTO windlass_take_places_v2 SELECT last_insert_rowid(), c.quota ->> '$.name', c.quota -> '$.limits'
    FROM windlass_classes AS c WHERE c.class_name = NEW.class AND c.quota IS NOT NULL AND NEW.after_batch IS NULL
    AND NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    INSERT INTO windlass_named_job_v2 SELECT NEW.class, coalesce(NEW.queue, (SELECT known.queue_name FROM windlass_classes AS known WHERE known.class_name = NEW.class), 'default'), coalesce(NEW.arguments, 'null'), coalesce(NEW.priority, (SELECT known.priority FROM windlass_classes AS known WHERE known.class_name = NEW.class), 0), CASE WHEN instr(NEW.run_at, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.run_at) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.run_at, 1, instr(NEW.run_at, '.') - 1) || ltrim(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), 1, length(substr(NEW.run_at, instr(NEW.run_at, '.') + 1)) - length(ltrim(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), '0123456789'))) || '000000', 1, 6) END, CAST(round(NEW.delay_seconds * 1000000) AS integer), NEW.unique_id, coalesce(NEW.unique_scope, (SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) ->> '$.unique_scope', 'until_finished'), coalesce(NEW.on_conflict, 'existing'), NEW.idempotency_key, coalesce(NEW.concurrency_group, NEW.class) || '/' || NEW.concurrency_key, CASE WHEN NEW.concurrency_key IS NOT NULL THEN min(coalesce(NEW.concurrency_limit, 1), 2147483647) END, nullif(NEW.concurrency_on_conflict, 'block'), coalesce(CASE WHEN NEW.max_attempts < 2147483647 THEN NEW.max_attempts WHEN NEW.max_attempts IS NOT NULL THEN 2147483647 END, CASE WHEN NOT coalesce(NEW.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class), 0) THEN (SELECT known.max_attempts FROM windlass_classes AS known WHERE known.class_name = NEW.class) END), coalesce(CASE WHEN NEW.max_crashes < 2147483647 THEN NEW.max_crashes WHEN NEW.max_crashes IS NOT NULL THEN 2147483647 END, (SELECT known.max_crashes FROM windlass_classes AS known WHERE known.class_name = NEW.class)), coalesce(NEW.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.delivery') IS NOT NULL), NEW.traceparent, CASE WHEN coalesce(NEW.unique_scope, NEW.tags, NEW.meta, NEW.version, NEW.timeout_seconds, NEW.backoff_seconds, NEW.backoff_cap_seconds, NEW.expires_in_seconds, NEW.not_after, NEW.retry_for_seconds, NEW.keep_result_seconds, NEW.at_most_once) IS NULL THEN (SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) ELSE nullif('{' || substr(coalesce(',"delivery":' || CASE WHEN NEW.at_most_once IS NULL THEN ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.delivery') END, '') || coalesce(',"backoff":' || coalesce(CASE WHEN NEW.backoff_cap_seconds IS NULL THEN '{"fixed":' || CAST((CAST(CASE WHEN NEW.backoff_seconds > 0 AND NEW.backoff_seconds < 0.000001 THEN 1 ELSE round(NEW.backoff_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}' ELSE '{"exponential":{"first":' || CAST((CAST(CASE WHEN NEW.backoff_seconds > 0 AND NEW.backoff_seconds < 0.000001 THEN 1 ELSE round(NEW.backoff_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || ',"cap":' || CAST((CAST(CASE WHEN NEW.backoff_cap_seconds > 0 AND NEW.backoff_cap_seconds < 0.000001 THEN 1 ELSE round(NEW.backoff_cap_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}}' END, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.backoff')), '') || coalesce(',"on_failure":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.on_failure'), '') || coalesce(',"keep_finished":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.keep_finished'), '') || coalesce(',"keep_result":' || coalesce(CAST((CAST(CASE WHEN NEW.keep_result_seconds > 0 AND NEW.keep_result_seconds < 0.000001 THEN 1 ELSE round(NEW.keep_result_seconds * 1000000) END AS integer) + 999) / 1000 AS text), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.keep_result')), '') || coalesce(',"unique_scope":' || coalesce('"' || NEW.unique_scope || '"', ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.unique_scope')), '') || coalesce(',"timeout":' || coalesce(CAST((CAST(CASE WHEN NEW.timeout_seconds > 0 AND NEW.timeout_seconds < 0.000001 THEN 1 ELSE round(NEW.timeout_seconds * 1000000) END AS integer) + 999) / 1000 AS text), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.timeout')), '') || coalesce(',"timeout_grace":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.timeout_grace'), '') || coalesce(',"on_timeout":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.on_timeout'), '') || coalesce(',"expiry":' || coalesce(coalesce('{"in":' || CAST((CAST(CASE WHEN NEW.expires_in_seconds > 0 AND NEW.expires_in_seconds < 0.000001 THEN 1 ELSE round(NEW.expires_in_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}', '{"at":' || '"' || CASE WHEN CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END LIKE '%.000000' THEN substr(replace(CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T'), 1, 19) WHEN CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END LIKE '%000' THEN substr(replace(CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T'), 1, 23) ELSE replace(CASE WHEN instr(NEW.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.not_after, 1, instr(NEW.not_after, '.') - 1) || ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), 1, length(substr(NEW.not_after, instr(NEW.not_after, '.') + 1)) - length(ltrim(substr(NEW.not_after, instr(NEW.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T') END || 'Z' || '"' || '}'), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.expiry')), '') || coalesce(',"retry_limit":' || coalesce('{"for":' || CAST((CAST(CASE WHEN NEW.retry_for_seconds > 0 AND NEW.retry_for_seconds < 0.000001 THEN 1 ELSE round(NEW.retry_for_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}', ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.retry_limit')), '') || coalesce(',"propagation_style":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.propagation_style'), '') || coalesce(',"extras":' || CASE WHEN coalesce(NEW.tags, NEW.meta, NEW.version) IS NULL THEN ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') ELSE nullif('{' || substr(coalesce(',"tags":' || nullif((SELECT json_group_array(value) FROM (SELECT value, min(place * 100 + key) FROM (SELECT key, value, type, fullkey, 0 AS place, NEW.tags AS whole FROM json_each(coalesce(NEW.tags, '[]')) UNION ALL SELECT key, value, type, fullkey, 1, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.tags' FROM json_each(coalesce(((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.tags', '[]'))) GROUP BY value ORDER BY 2)), '[]'), '') || coalesce(',"meta":' || nullif((SELECT json_group_object(key, json(part)) FROM (SELECT key, CASE WHEN type IN ('object', 'array') THEN value WHEN type IN ('true', 'false') THEN type ELSE coalesce(whole -> fullkey, json_quote(value)) END AS part, min(place) FROM (SELECT key, value, type, fullkey, 0 AS place, NEW.meta AS whole FROM json_each(coalesce(NEW.meta, '{}')) UNION ALL SELECT key, value, type, fullkey, 1, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.meta' FROM json_each(coalesce(((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.meta', '{}'))) GROUP BY key ORDER BY key)), '{}'), '') || CASE WHEN NEW.version <> 1 THEN ',"version":' || NEW.version ELSE '' END, 2) || '}', '{}') END, ''), 2) || '}', '{}') END, NEW.tenant, NEW.batch_id, NEW.after_batch, NEW.runs_on, CASE WHEN NEW.rates IS NULL THEN (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class) ELSE (SELECT '[' || group_concat('{"key":' || json_quote(coalesce((rate.value ->> '$.key'), NEW.class)) || ',"number":' || (rate.value ->> '$.number') || ',"period":' || CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END || ',"burst":' || coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END))) || CASE WHEN (rate.value ->> '$.cost') > 1 THEN ',"cost":' || (rate.value ->> '$.cost') ELSE '' END || '}') || ']' FROM json_each(NEW.rates) AS rate) END, known.id, names.job_id,
        CASE WHEN (names.place <= 2 OR names.place = 3 AND names.scope <> 'while_waiting' OR names.place = 4 AND names.scope = 'until_result_expires') THEN names.job_id
            WHEN (names.after_place <= 2 OR names.after_place = 3 AND names.scope <> 'while_waiting' OR names.after_place = 4 AND names.scope = 'until_result_expires') THEN names.after_job_id END,
        CASE WHEN (names.place <= 2 OR names.place = 3 AND names.scope <> 'while_waiting' OR names.place = 4 AND names.scope = 'until_result_expires') THEN names.place
            WHEN (names.after_place <= 2 OR names.after_place = 3 AND names.scope <> 'while_waiting' OR names.after_place = 4 AND names.scope = 'until_result_expires') THEN names.after_place END
    FROM (SELECT 1) AS one
    LEFT JOIN (SELECT id FROM solid_queue_jobs WHERE idempotency_key = NEW.idempotency_key) AS known
    LEFT JOIN (SELECT u.job_id, u.scope, u.after_job_id, CASE WHEN EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE job_id = u.job_id) THEN 0 WHEN EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id = u.job_id) THEN 1 WHEN EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = u.job_id) THEN 2 WHEN EXISTS (SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = u.job_id) THEN 3 WHEN EXISTS (SELECT 1 FROM windlass_results WHERE job_id = u.job_id AND expires_at > strftime('%Y-%m-%d %H:%M:%f000', 'now')) THEN 4 ELSE 5 END AS place, CASE WHEN EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE job_id = u.after_job_id) THEN 0 WHEN EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id = u.after_job_id) THEN 1 WHEN EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = u.after_job_id) THEN 2 WHEN EXISTS (SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = u.after_job_id) THEN 3 WHEN EXISTS (SELECT 1 FROM windlass_results WHERE job_id = u.after_job_id AND expires_at > strftime('%Y-%m-%d %H:%M:%f000', 'now')) THEN 4 ELSE 5 END AS after_place
        FROM windlass_unique_jobs AS u WHERE u.unique_id = NEW.unique_id) AS names
    WHERE NEW.unique_id IS NOT NULL OR NEW.idempotency_key IS NOT NULL OR NEW.concurrency_key IS NOT NULL;
END;

-- Makes a job ready, scheduled or blocked; is_behind: it waits until another job has ended, after_batch: until a batch is over.
-- A new job joins its batch, whose total a promotion raises.
CREATE TRIGGER IF NOT EXISTS windlass_place_job_v2_insert INSTEAD OF INSERT ON windlass_place_job_v2
BEGIN
    INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, min(coalesce(CASE WHEN instr((j.policy ->> '$.expiry.at'), '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', (j.policy ->> '$.expiry.at')) ELSE strftime('%Y-%m-%d %H:%M:%S', substr((j.policy ->> '$.expiry.at'), 1, instr((j.policy ->> '$.expiry.at'), '.') - 1) || ltrim(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), '0123456789')) || '.' || substr(substr(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), 1, length(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1)) - length(ltrim(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), '0123456789'))) || '000000', 1, 6) END, strftime('%Y-%m-%d %H:%M:%f000', max(coalesce(j.scheduled_at, strftime('%Y-%m-%d %H:%M:%f000', 'now')), strftime('%Y-%m-%d %H:%M:%f000', 'now')), (min(j.policy ->> '$.expiry.in', 31622400000000) / 1000.0) || ' seconds'), '9999-12-30 00:00:00.000000'), '9999-12-30 00:00:00.000000') FROM solid_queue_jobs AS j WHERE j.policy LIKE '%"expiry":%' AND j.policy -> '$.expiry' IS NOT NULL AND j.id = NEW.id
    AND NOT EXISTS (SELECT 1 FROM windlass_expiries AS e WHERE e.job_id = NEW.id);
    INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
    SELECT id, queue_name, priority, class_name, (at_most_once OR crash_count > 0 OR coalesce(max_crashes = 0, false)), updated_at FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND concurrency_key IS NULL AND gate IS NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at);
    INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
    SELECT id, queue_name, priority, scheduled_at, updated_at FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND scheduled_at > updated_at;
    INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at)
    SELECT id, queue_name, CASE WHEN NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND concurrency_conflict = 'ordered' THEN -2147483648 ELSE priority END,
        CASE WHEN NEW.is_behind THEN ' ' WHEN NEW.after_batch IS NOT NULL THEN '  '
            WHEN gate IS NOT NULL THEN '    ' ELSE concurrency_key END,
        CASE WHEN NEW.is_behind IS NULL AND NEW.after_batch IS NULL THEN gate END,
        CASE WHEN NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND gate IS NULL AND concurrency_conflict = 'discard' AND last_claim_id IS NULL
            THEN '9999-12-31 00:00:00.000000' ELSE '9999-12-31 23:59:59.000000' END, updated_at
    FROM solid_queue_jobs WHERE id = NEW.id
    AND (NEW.is_behind OR NEW.after_batch IS NOT NULL OR coalesce(concurrency_key, gate) IS NOT NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at));
    INSERT INTO windlass_wanted_keys (key) SELECT concurrency_key FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at)
    AND gate IS NULL AND concurrency_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key = concurrency_key);
    INSERT INTO windlass_wanted_keys (kind, name) SELECT 'gate', gate FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at)
    AND gate IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.kind = 'gate' AND w.name = gate);
    INSERT INTO windlass_wanted_keys (kind, target_id, amount) SELECT 'batch', batch_id, 1 FROM solid_queue_jobs WHERE id = NEW.id
    AND batch_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batch_executions AS e WHERE e.job_id = NEW.id);
    INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) SELECT id, batch_id, updated_at FROM solid_queue_jobs
    WHERE id = NEW.id AND batch_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batch_executions AS e WHERE e.job_id = NEW.id);
    INSERT INTO windlass_edges (child_job_id, parent_batch_id, runs_on, otherwise, created_at)
    SELECT NEW.id, NEW.after_batch, coalesce(NEW.runs_on, 'success'), 'discard', strftime('%Y-%m-%d %H:%M:%f000', 'now') WHERE NEW.after_batch IS NOT NULL;
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'batch', NEW.after_batch WHERE NEW.after_batch IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys AS w WHERE w.kind = 'batch' AND w.target_id = NEW.after_batch AND w.amount IS NULL);
END;

-- A job that is replaced by SQL is placed anew, waits no longer, and what undoes its steps runs.
CREATE TRIGGER IF NOT EXISTS windlass_place_job_v2_wait INSTEAD OF INSERT ON windlass_place_job_v2
BEGIN
    DELETE FROM windlass_waits WHERE job_id = NEW.id;
    DELETE FROM windlass_edges WHERE child_job_id = NEW.id AND otherwise = 'join';
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'after', w.child_job_id FROM windlass_edges w
    WHERE w.parent_job_id = NEW.id AND w.runs_on = 'failure' AND w.otherwise = 'undo';
    UPDATE windlass_edges SET runs_on = 'finish', outcome = 'failed'
    WHERE parent_job_id = NEW.id AND runs_on = 'failure' AND otherwise = 'undo';
END;

-- Inserts a job that has a unique id, a key or a limit. The job that holds its unique id is holder, at a place: 0 ready,
-- 1 scheduled, 2 blocked, 3 claimed, 4 ended with a result that is kept.
CREATE TRIGGER IF NOT EXISTS windlass_named_job_v2_insert INSTEAD OF INSERT ON windlass_named_job_v2
BEGIN
    SELECT CASE WHEN NEW.known IS NULL AND NEW.holder IS NOT NULL AND NEW.on_conflict = 'refuse'
        THEN RAISE(ABORT, 'cannot enqueue the job: another job holds its unique_id')
        WHEN NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace' AND EXISTS (SELECT 1 FROM solid_queue_jobs AS j
            JOIN windlass_classes AS c ON c.class_name = j.class_name WHERE j.id = NEW.holder AND c.internal)
        THEN RAISE(ABORT, 'cannot enqueue the job: a job of an internal class holds its unique_id') END;
    INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, idempotency_key, unique_id, concurrency_key, concurrency_slots, concurrency_conflict, rates, gate, created_at, updated_at) SELECT NEW.queue, NEW.class, NEW.arguments, NEW.priority, NEW.max_attempts, NEW.max_crashes, NEW.at_most_once, NEW.policy, NEW.traceparent, NEW.tenant, NEW.batch_id, NULL, coalesce(NEW.due_at, strftime('%Y-%m-%d %H:%M:%f000', 'now', (NEW.delay / 1000000.0) || ' seconds')), NEW.idempotency_key, NEW.unique_id, NEW.concurrency_key, NEW.concurrency_slots, NEW.concurrency_conflict, NEW.rates, CASE WHEN coalesce(NEW.rates, NEW.tenant) IS NOT NULL THEN (SELECT CASE WHEN NEW.concurrency_conflict = 'ordered' THEN '' ELSE waits.line END || coalesce(char(30) || NEW.concurrency_key, '') FROM (SELECT CASE WHEN NEW.tenant IS NULL THEN (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(NEW.rates) AS rate) ELSE coalesce((SELECT char(29) || fair.queue_name || char(28) || NEW.tenant FROM windlass_fair_queues AS fair WHERE fair.queue_name = NEW.queue AND NOT fair.is_ending) || coalesce(char(31) || (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(NEW.rates) AS rate), ''), (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(NEW.rates) AS rate)) END AS line) AS waits WHERE waits.line IS NOT NULL) END, strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));
    SELECT CASE WHEN NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again')) AND changes() = 0 THEN RAISE(ABORT, 'cannot enqueue the job: a trigger of solid_queue_jobs ignores it') END;
    INSERT INTO windlass_place_job_v2 SELECT last_insert_rowid(), CASE WHEN NEW.holder IS NOT NULL THEN 1 END, NEW.after_batch, NEW.runs_on
    WHERE NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));
    INSERT INTO windlass_take_places_v2 SELECT last_insert_rowid(), c.quota ->> '$.name', c.quota -> '$.limits'
    FROM windlass_classes AS c WHERE c.class_name = NEW.class AND c.quota IS NOT NULL AND NEW.after_batch IS NULL AND NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));
    DELETE FROM windlass_unique_jobs WHERE unique_id = NEW.unique_id AND NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));
    INSERT INTO windlass_unique_jobs (unique_id, job_id, scope, after_job_id)
    SELECT NEW.unique_id, last_insert_rowid(), NEW.unique_scope, NEW.holder WHERE NEW.unique_id IS NOT NULL AND NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));

    -- Replaces a waiting job, which keeps only its id. What waits for another job to end stays blocked.
    UPDATE windlass_unique_jobs SET job_id = NEW.holder, scope = NEW.unique_scope,
        after_job_id = CASE WHEN NEW.holder = NEW.holds THEN after_job_id END
    WHERE unique_id = NEW.unique_id AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    UPDATE solid_queue_jobs SET queue_name = NEW.queue, class_name = NEW.class, arguments = NEW.arguments, priority = NEW.priority, max_attempts = NEW.max_attempts, max_crashes = NEW.max_crashes, at_most_once = NEW.at_most_once, policy = NEW.policy, traceparent = NEW.traceparent, tenant = NEW.tenant, scheduled_at = coalesce(NEW.due_at, strftime('%Y-%m-%d %H:%M:%f000', 'now', (NEW.delay / 1000000.0) || ' seconds')), concurrency_key = NEW.concurrency_key, concurrency_slots = NEW.concurrency_slots, concurrency_conflict = NEW.concurrency_conflict, rates = NEW.rates, gate = CASE WHEN coalesce(NEW.rates, NEW.tenant) IS NOT NULL THEN (SELECT CASE WHEN NEW.concurrency_conflict = 'ordered' THEN '' ELSE waits.line END || coalesce(char(30) || NEW.concurrency_key, '') FROM (SELECT CASE WHEN NEW.tenant IS NULL THEN (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(NEW.rates) AS rate) ELSE coalesce((SELECT char(29) || fair.queue_name || char(28) || NEW.tenant FROM windlass_fair_queues AS fair WHERE fair.queue_name = NEW.queue AND NOT fair.is_ending) || coalesce(char(31) || (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(NEW.rates) AS rate), ''), (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(NEW.rates) AS rate)) END AS line) AS waits WHERE waits.line IS NOT NULL) END, attempts = 0, crash_count = 0, updated_at = strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    DELETE FROM windlass_attempts WHERE job_id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace'
    -- The newest stay, and those of released runs are counted by themselves.
    AND id <= (SELECT older.id FROM windlass_attempts AS older WHERE older.job_id = NEW.holder
        AND (older.outcome = 'released') = (windlass_attempts.outcome = 'released') ORDER BY older.id DESC LIMIT 1 OFFSET 20);
    DELETE FROM windlass_expiries WHERE job_id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, min(coalesce(CASE WHEN instr((j.policy ->> '$.expiry.at'), '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', (j.policy ->> '$.expiry.at')) ELSE strftime('%Y-%m-%d %H:%M:%S', substr((j.policy ->> '$.expiry.at'), 1, instr((j.policy ->> '$.expiry.at'), '.') - 1) || ltrim(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), '0123456789')) || '.' || substr(substr(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), 1, length(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1)) - length(ltrim(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), '0123456789'))) || '000000', 1, 6) END, strftime('%Y-%m-%d %H:%M:%f000', max(coalesce(j.scheduled_at, strftime('%Y-%m-%d %H:%M:%f000', 'now')), strftime('%Y-%m-%d %H:%M:%f000', 'now')), (min(j.policy ->> '$.expiry.in', 31622400000000) / 1000.0) || ' seconds'), '9999-12-30 00:00:00.000000'), '9999-12-30 00:00:00.000000') FROM solid_queue_jobs AS j WHERE j.policy LIKE '%"expiry":%' AND j.policy -> '$.expiry' IS NOT NULL AND j.id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    DELETE FROM windlass_steps WHERE job_id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    UPDATE solid_queue_blocked_executions SET queue_name = NEW.queue, priority = NEW.priority WHERE job_id = NEW.holder
    AND concurrency_key = ' ' AND NEW.known IS NULL AND NEW.place = 2 AND NEW.on_conflict = 'replace';
    DELETE FROM solid_queue_ready_executions WHERE job_id = NEW.holder
    AND NEW.known IS NULL AND NEW.place = 0 AND NEW.on_conflict = 'replace';
    DELETE FROM solid_queue_scheduled_executions WHERE job_id = NEW.holder
    AND NEW.known IS NULL AND NEW.place = 1 AND NEW.on_conflict = 'replace';
    -- Others of an ordered key may wait behind one with a rate.
    INSERT INTO windlass_wanted_keys (key) SELECT substr(gate, instr(gate, char(30)) + 1) FROM solid_queue_blocked_executions
    WHERE job_id = NEW.holder AND instr(gate, char(30)) > 0 AND NEW.known IS NULL AND NEW.place = 2 AND NEW.on_conflict = 'replace';
    DELETE FROM solid_queue_blocked_executions WHERE job_id = NEW.holder AND concurrency_key <> ' '
    AND NEW.known IS NULL AND NEW.place = 2 AND NEW.on_conflict = 'replace';
    INSERT INTO windlass_place_job_v2 (id) SELECT NEW.holder
    WHERE NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace'
    AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = NEW.holder);
END;

CREATE TRIGGER IF NOT EXISTS windlass_enqueue_insert INSTEAD OF INSERT ON windlass_enqueue
BEGIN
    INSERT INTO windlass_enqueue_v2 SELECT NEW.class, NEW.arguments, NEW.queue, NEW.priority, NEW.run_at, NEW.delay_seconds, NEW.unique_id, NEW.unique_scope, NEW.on_conflict, NEW.idempotency_key, NEW.concurrency_key, NEW.concurrency_group, NEW.concurrency_limit, NEW.concurrency_on_conflict, NEW.max_attempts, NEW.max_crashes, NEW.at_most_once, NEW.traceparent, NEW.tags, NEW.meta, NEW.version, NEW.timeout_seconds, NEW.backoff_seconds, NEW.backoff_cap_seconds, NEW.expires_in_seconds, NEW.not_after, NEW.retry_for_seconds, NEW.keep_result_seconds, NEW.tenant, NEW.batch_id, NEW.after_batch, NEW.runs_on, NEW.rates, NEW.id, NEW.outcome;
END;

-- Jobs without name and limit are inserted at once, others one by one.
CREATE TRIGGER IF NOT EXISTS windlass_enqueue_many_v2_insert INSTEAD OF INSERT ON windlass_enqueue_many_v2
BEGIN
    SELECT CASE
        WHEN NEW.class IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is missing')
        WHEN typeof(NEW.class) NOT IN ('null', 'text') OR length(CAST(NEW.class AS blob)) NOT BETWEEN 1 AND 255 OR NEW.class GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(NEW.class, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`') END;
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND internal)
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is internal, so only its program''s own code enqueues it')
        WHEN EXISTS (SELECT 1 FROM windlass_settings WHERE name = 'strict_classes' AND value = 'on') AND NOT EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class)
        THEN RAISE(ABORT, 'cannot enqueue the job: no worker has stored its class, and strict_classes is on; start a worker that performs it, or correct the name') END;
    SELECT CASE WHEN NEW.jobs IS NULL OR NOT json_valid(NEW.jobs) THEN RAISE(ABORT, 'cannot enqueue the jobs: they are not JSON')
        WHEN instr(NEW.jobs, char(0)) OR instr(replace(NEW.jobs, '\\', ''), '\u0000') THEN RAISE(ABORT, 'cannot enqueue the jobs: they contain a NUL character')
        WHEN json_type(NEW.jobs) <> 'array' THEN RAISE(ABORT, 'cannot enqueue the jobs: they are not a JSON array of objects') END;
    SELECT CASE WHEN e.type <> 'object' THEN RAISE(ABORT, 'cannot enqueue the jobs: one of the list is not an object')
        WHEN (SELECT max((CASE WHEN f.key = 'arguments' THEN 0 WHEN f.key IN ('priority', 'delay_seconds', 'concurrency_limit', 'max_attempts', 'max_crashes', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'retry_for_seconds', 'keep_result_seconds', 'batch_id', 'after_batch') THEN f.type NOT IN ('integer', 'real', 'null') WHEN f.key IN ('queue', 'run_at', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_on_conflict', 'traceparent', 'not_after', 'tenant', 'runs_on') THEN f.type NOT IN ('text', 'null') WHEN f.key IN ('at_most_once') THEN f.type NOT IN ('true', 'false', 'null') WHEN f.key IN ('tags', 'rates') THEN f.type NOT IN ('array', 'null') WHEN f.key IN ('meta') THEN f.type NOT IN ('object', 'null') ELSE 1 END OR json_type(e.value, '$.' || f.key) IS NULL)) OR count(*) <> count(DISTINCT f.key) FROM json_each(e.value) AS f)
        THEN coalesce((SELECT CASE
        WHEN f.key = 'queue' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its queue must be a JSON string')
        WHEN f.key = 'priority' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its priority must be a JSON number')
        WHEN f.key = 'run_at' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its run_at must be a JSON string')
        WHEN f.key = 'delay_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its delay_seconds must be a JSON number')
        WHEN f.key = 'unique_id' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_id must be a JSON string')
        WHEN f.key = 'unique_scope' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_scope must be a JSON string')
        WHEN f.key = 'on_conflict' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its on_conflict must be a JSON string')
        WHEN f.key = 'idempotency_key' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its idempotency_key must be a JSON string')
        WHEN f.key = 'concurrency_key' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key must be a JSON string')
        WHEN f.key = 'concurrency_group' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_group must be a JSON string')
        WHEN f.key = 'concurrency_limit' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_limit must be a JSON number')
        WHEN f.key = 'concurrency_on_conflict' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_on_conflict must be a JSON string')
        WHEN f.key = 'max_attempts' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_attempts must be a JSON number')
        WHEN f.key = 'max_crashes' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_crashes must be a JSON number')
        WHEN f.key = 'at_most_once' AND f.type NOT IN ('true', 'false', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its at_most_once must be true or false')
        WHEN f.key = 'traceparent' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its traceparent must be a JSON string')
        WHEN f.key = 'tags' AND f.type NOT IN ('array', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags must be a JSON array')
        WHEN f.key = 'meta' AND f.type NOT IN ('object', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta must be a JSON object')
        WHEN f.key = 'version' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its version must be a JSON number')
        WHEN f.key = 'timeout_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its timeout_seconds must be a JSON number')
        WHEN f.key = 'backoff_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_seconds must be a JSON number')
        WHEN f.key = 'backoff_cap_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_cap_seconds must be a JSON number')
        WHEN f.key = 'expires_in_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its expires_in_seconds must be a JSON number')
        WHEN f.key = 'not_after' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its not_after must be a JSON string')
        WHEN f.key = 'retry_for_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its retry_for_seconds must be a JSON number')
        WHEN f.key = 'keep_result_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its keep_result_seconds must be a JSON number')
        WHEN f.key = 'tenant' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tenant must be a JSON string')
        WHEN f.key = 'batch_id' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its batch_id must be a JSON number')
        WHEN f.key = 'after_batch' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its after_batch must be a JSON number')
        WHEN f.key = 'runs_on' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its runs_on must be a JSON string')
        WHEN f.key = 'rates' AND f.type NOT IN ('array', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates must be a JSON array')
        ELSE RAISE(ABORT, 'cannot enqueue the jobs: one of the list has a key that is no column of windlass_enqueue') END FROM json_each(e.value) AS f WHERE (CASE WHEN f.key = 'arguments' THEN 0 WHEN f.key IN ('priority', 'delay_seconds', 'concurrency_limit', 'max_attempts', 'max_crashes', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'retry_for_seconds', 'keep_result_seconds', 'batch_id', 'after_batch') THEN f.type NOT IN ('integer', 'real', 'null') WHEN f.key IN ('queue', 'run_at', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_on_conflict', 'traceparent', 'not_after', 'tenant', 'runs_on') THEN f.type NOT IN ('text', 'null') WHEN f.key IN ('at_most_once') THEN f.type NOT IN ('true', 'false', 'null') WHEN f.key IN ('tags', 'rates') THEN f.type NOT IN ('array', 'null') WHEN f.key IN ('meta') THEN f.type NOT IN ('object', 'null') ELSE 1 END OR json_type(e.value, '$.' || f.key) IS NULL)),
            RAISE(ABORT, 'cannot enqueue the jobs: one of the list names a key twice')) END
    FROM json_each(NEW.jobs) AS e;
    SELECT CASE
        WHEN typeof(r.queue) NOT IN ('null', 'text') OR length(CAST(r.queue AS blob)) NOT BETWEEN 1 AND 255 OR r.queue GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(r.queue, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`')
        WHEN typeof(r.priority) NOT IN ('null', 'integer') OR r.priority NOT BETWEEN -2147483648 AND 2147483647
        THEN RAISE(ABORT, 'cannot enqueue the job: its priority must be an integer of 32 bits')
        WHEN typeof(r.arguments) NOT IN ('null', 'text') OR coalesce(length(CAST(r.arguments AS blob)), 0) + coalesce(length(CAST(r.tags AS blob)) + 9, 0) + coalesce(length(CAST(r.meta AS blob)) + 9, 0) > coalesce((SELECT known.max_arguments FROM windlass_classes AS known WHERE known.class_name = NEW.class), 65536)
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference')
        WHEN instr(r.arguments, char(0)) > 0 OR instr(replace(r.arguments, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.arguments) - length(replace(replace(r.arguments, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.arguments, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.arguments GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a text has half of a surrogate pair')
        WHEN (r.arguments GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.arguments GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.arguments) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN coalesce(r.run_at, r.delay_seconds, r.unique_id, r.unique_scope, r.on_conflict, r.idempotency_key, r.concurrency_key, r.concurrency_group, r.concurrency_limit, r.concurrency_on_conflict, r.max_attempts, r.max_crashes, r.at_most_once, r.traceparent, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.tenant, r.batch_id, r.after_batch, r.runs_on, r.rates) IS NULL THEN NULL
        WHEN typeof(r.idempotency_key) NOT IN ('null', 'text') OR length(CAST(r.idempotency_key AS blob)) NOT BETWEEN 1 AND 255 OR instr(r.idempotency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its idempotency_key must have 1 to 255 bytes and no NUL')
        WHEN typeof(r.unique_id) NOT IN ('null', 'text') OR length(CAST(r.unique_id AS blob)) NOT BETWEEN 1 AND 255 OR instr(r.unique_id, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_id must have 1 to 255 bytes and no NUL')
        WHEN r.unique_scope NOT IN ('while_waiting', 'until_finished', 'until_result_expires')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_scope must be one of while_waiting, until_finished, until_result_expires')
        WHEN r.on_conflict NOT IN ('existing', 'refuse', 'replace', 'run_again')
        THEN RAISE(ABORT, 'cannot enqueue the job: its on_conflict must be one of existing, refuse, replace, run_again')
        WHEN r.concurrency_on_conflict NOT IN ('block', 'discard', 'ordered')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_on_conflict must be one of block, discard, ordered')
        WHEN typeof(r.concurrency_key) NOT IN ('null', 'text') OR typeof(r.concurrency_group) NOT IN ('null', 'text') OR r.concurrency_key = '' OR r.concurrency_group = '' OR length(CAST(coalesce(r.concurrency_group, NEW.class) || '/' || r.concurrency_key AS blob)) > 255 OR instr(coalesce(r.concurrency_group, NEW.class) || '/' || r.concurrency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key and concurrency_group must not be empty, have at most 255 bytes together, and no NUL')
        WHEN r.concurrency_key IS NULL AND (r.concurrency_limit IS NOT NULL OR r.concurrency_group IS NOT NULL OR r.concurrency_on_conflict IS NOT NULL)
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key is missing, without which there is no limit')
        WHEN typeof(r.concurrency_limit) NOT IN ('null', 'integer') OR r.concurrency_limit < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_limit must be 1 or more; pause its queue to stop its jobs')
        WHEN r.concurrency_on_conflict = 'ordered' AND r.concurrency_limit <> 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency key is ordered, so its concurrency_limit must be 1')
        WHEN r.run_at IS NOT NULL AND r.delay_seconds IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it has both run_at and delay_seconds; choose one')
        WHEN r.run_at IS NOT NULL AND (typeof(r.run_at) <> 'text' OR r.run_at NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' OR date(substr(r.run_at, 1, 10), '+0 days') IS NOT substr(r.run_at, 1, 10) OR datetime(r.run_at) IS NULL OR datetime(r.run_at) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr(r.run_at, 12, 2) = '24' OR instr(r.run_at, char(0)) > 0 OR (length(r.run_at) > 10 AND substr(r.run_at, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') OR NOT (ltrim(substr(r.run_at, 12), '0123456789:.') IN ('', 'Z') OR ltrim(substr(r.run_at, 12), '0123456789:.') GLOB '[+-][0-9][0-9]:[0-9][0-9]'))
        THEN RAISE(ABORT, 'cannot enqueue the job: its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z')
        WHEN typeof(r.delay_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.delay_seconds >= 0 AND r.delay_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its delay_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.max_attempts) NOT IN ('null', 'integer') OR r.max_attempts < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_attempts must be an integer, 1 or more')
        WHEN typeof(r.max_crashes) NOT IN ('null', 'integer') OR r.max_crashes < 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_crashes must be an integer, 0 or more')
        WHEN typeof(r.version) NOT IN ('null', 'integer') OR r.version < 1 OR r.version > 4294967295
        THEN RAISE(ABORT, 'cannot enqueue the job: its version must be an integer, 1 or more and at most 4294967295')
        WHEN r.at_most_once NOT IN (0, 1)
        THEN RAISE(ABORT, 'cannot enqueue the job: its at_most_once must be true or false')
        WHEN coalesce(r.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class)) AND r.max_attempts > 1
        THEN RAISE(ABORT, 'cannot enqueue the job: it has at-most-once delivery and more than one attempt; choose one')
        WHEN typeof(r.traceparent) NOT IN ('null', 'text') OR instr(r.traceparent, char(0)) > 0 OR length(CAST(r.traceparent AS blob)) > 255 OR substr(r.traceparent, 4, 32) = '00000000000000000000000000000000' OR substr(r.traceparent, 37, 16) = '0000000000000000' OR r.traceparent GLOB 'ff*' OR (r.traceparent GLOB '00*' AND length(r.traceparent) <> 55) OR (r.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]' AND r.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]-*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its traceparent is not one of W3C Trace Context; pass the header as it is, `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits')
        WHEN typeof(r.tags) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags must be JSON text')
        WHEN instr(r.tags, char(0)) > 0 OR instr(replace(r.tags, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.tags) - length(replace(replace(r.tags, '[', ''), '{', '')) > 119 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.tags, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 119) SELECT max(depth) FROM level) > 119
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags are nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.tags GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags could not be read again: a text has half of a surrogate pair')
        WHEN (r.tags GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.tags GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.tags) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN typeof(r.meta) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta must be JSON text')
        WHEN instr(r.meta, char(0)) > 0 OR instr(replace(r.meta, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta contains a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.meta) - length(replace(replace(r.meta, '[', ''), '{', '')) > 119 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.meta, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 119) SELECT max(depth) FROM level) > 119
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta is nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.meta GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta could not be read again: a text has half of a surrogate pair')
        WHEN (r.meta GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.meta GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.meta) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN json_type(r.tags) <> 'array' OR (SELECT count(DISTINCT tag.value) > 32 OR max(tag.type <> 'text' OR length(CAST(tag.value AS blob)) NOT BETWEEN 1 AND 100) FROM json_each(r.tags) AS tag)
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags must be a JSON array of at most 32 texts, each of 1 to 100 bytes and without NUL')
        WHEN json_type(r.meta) <> 'object' OR (SELECT count(DISTINCT part.key) > 32 OR count(*) <> count(DISTINCT part.key) OR max(length(CAST(part.key AS blob)) NOT BETWEEN 1 AND 100) FROM json_each(r.meta) AS part)
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta must be a JSON object of at most 32 keys, each of 1 to 100 bytes and without NUL')
        WHEN typeof(r.timeout_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.timeout_seconds >= 0 AND r.timeout_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its timeout_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.keep_result_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.keep_result_seconds >= 0 AND r.keep_result_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its keep_result_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.backoff_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.backoff_seconds >= 0 AND r.backoff_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.backoff_cap_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.backoff_cap_seconds >= 0 AND r.backoff_cap_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_cap_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.expires_in_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.expires_in_seconds > 0 AND r.expires_in_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its expires_in_seconds must be above 0, and at most 1000 years')
        WHEN typeof(r.retry_for_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.retry_for_seconds > 0 AND r.retry_for_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its retry_for_seconds must be above 0, and at most 1000 years')
        WHEN r.backoff_cap_seconds IS NOT NULL AND r.backoff_seconds IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_seconds is missing, the first delay, without which there is no cap')
        WHEN r.not_after IS NOT NULL AND r.expires_in_seconds IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it has both not_after and expires_in_seconds; choose one')
        WHEN r.not_after IS NOT NULL AND (typeof(r.not_after) <> 'text' OR r.not_after NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' OR date(substr(r.not_after, 1, 10), '+0 days') IS NOT substr(r.not_after, 1, 10) OR datetime(r.not_after) IS NULL OR datetime(r.not_after) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr(r.not_after, 12, 2) = '24' OR instr(r.not_after, char(0)) > 0 OR (length(r.not_after) > 10 AND substr(r.not_after, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') OR NOT (ltrim(substr(r.not_after, 12), '0123456789:.') IN ('', 'Z') OR ltrim(substr(r.not_after, 12), '0123456789:.') GLOB '[+-][0-9][0-9]:[0-9][0-9]'))
        THEN RAISE(ABORT, 'cannot enqueue the job: its not_after must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z')
        WHEN julianday(r.not_after) <= julianday(r.run_at)
        THEN RAISE(ABORT, 'cannot enqueue the job: it would expire before it is due: its not_after is not behind its run_at')
        WHEN typeof(r.tenant) NOT IN ('null', 'text') OR length(CAST(r.tenant AS blob)) NOT BETWEEN 1 AND 255 OR instr(r.tenant, char(0)) > 0 OR r.tenant GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        THEN RAISE(ABORT, 'cannot enqueue the job: its tenant must have 1 to 255 bytes and no control character')
        WHEN r.runs_on NOT IN ('success', 'failure', 'finish')
        THEN RAISE(ABORT, 'cannot enqueue the job: its runs_on must be one of success, failure, finish')
        WHEN r.runs_on IS NOT NULL AND r.after_batch IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its after_batch is missing, whose outcome its runs_on names')
        WHEN r.after_batch IS NOT NULL AND r.unique_id IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it waits for a batch, and cannot have a unique_id')
        WHEN r.after_batch = r.batch_id
        THEN RAISE(ABORT, 'cannot enqueue the job: it waits for its own batch, which could not end')
        WHEN r.batch_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = r.batch_id AND b.active_job_batch_id LIKE 'windlass-%')
        THEN RAISE(ABORT, 'cannot enqueue the job: there is no batch of its batch_id')
        WHEN r.after_batch IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = r.after_batch AND b.active_job_batch_id LIKE 'windlass-%')
        THEN RAISE(ABORT, 'cannot enqueue the job: there is no batch of its after_batch')
        WHEN EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = r.batch_id AND b.finished_at IS NOT NULL AND NOT (SELECT e.job_id FROM solid_queue_batch_executions e WHERE e.batch_id = b.id ORDER BY e.job_id DESC LIMIT 1) IS NOT NULL)
        THEN RAISE(ABORT, 'cannot enqueue the job: the batch of its batch_id is over')
        WHEN typeof(r.rates) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates must be JSON text')
        WHEN instr(r.rates, char(0)) > 0 OR instr(replace(r.rates, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.rates) - length(replace(replace(r.rates, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.rates, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.rates GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates could not be read again: a text has half of a surrogate pair')
        WHEN (r.rates GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.rates GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.rates) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN json_type(r.rates) <> 'array' OR json_array_length(r.rates) > 4 OR (SELECT max(CASE WHEN rate.type <> 'object' THEN 1 ELSE (SELECT count(*) <> count(DISTINCT part.key) OR max(part.key NOT IN ('number', 'period', 'burst', 'key', 'cost')) FROM json_each(rate.value) AS part) END) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates must be a JSON array of at most 4 objects, each with a number and a period, and maybe with a burst, a key and a cost')
        WHEN (SELECT max(coalesce(json_type(rate.value, '$.key'), 'null') NOT IN ('text', 'null') OR length(CAST(rate.value ->> '$.key' AS blob)) NOT BETWEEN 1 AND 255 OR rate.value ->> '$.key' GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*') FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the key of its rate must have 1 to 255 bytes and no control character')
        WHEN (SELECT max(CASE json_type(rate.value, '$.period') WHEN 'text' THEN rate.value ->> '$.period' NOT IN ('second', 'minute', 'hour', 'day') WHEN 'integer' THEN rate.value ->> '$.period' NOT BETWEEN 1 AND 86400000000 ELSE 1 END) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the period of its rate must be second, minute, hour or day, or an integer of microseconds from 1 to 86400000000')
        WHEN (SELECT max(coalesce(json_type(rate.value, '$.number'), 'null') NOT IN ('integer') OR rate.value ->> '$.number' NOT BETWEEN 1 AND 10000000 OR coalesce(json_type(rate.value, '$.burst'), 'null') NOT IN ('integer', 'null') OR rate.value ->> '$.burst' NOT BETWEEN 1 AND 10000000 OR coalesce(json_type(rate.value, '$.cost'), 'null') NOT IN ('integer', 'null') OR rate.value ->> '$.cost' NOT BETWEEN 1 AND 10000000 OR coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END))) > 10000000) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the number, the burst and the cost of its rate must be integers from 1 to 10000000, and so must the burst that its number makes')
        WHEN (SELECT max(rate.value ->> '$.cost' > coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END)))) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: it costs more starts than the burst of its rate, so it could never start; raise the burst, or split the job')
        WHEN (SELECT count(*) <> count(DISTINCT coalesce(rate.value ->> '$.key', NEW.class)) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: two of its rates have the same key')
        WHEN coalesce(r.unique_id, r.idempotency_key, r.concurrency_key, r.after_batch) IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: one of its keys is written with an escape') END FROM (WITH e AS MATERIALIZED (SELECT value FROM json_each(NEW.jobs)) SELECT e.value -> '$.arguments' AS arguments, e.value ->> '$.queue' AS queue, e.value ->> '$.priority' AS priority, e.value ->> '$.run_at' AS run_at, e.value ->> '$.delay_seconds' AS delay_seconds, e.value ->> '$.unique_id' AS unique_id, e.value ->> '$.unique_scope' AS unique_scope, e.value ->> '$.on_conflict' AS on_conflict, e.value ->> '$.idempotency_key' AS idempotency_key, e.value ->> '$.concurrency_key' AS concurrency_key, e.value ->> '$.concurrency_group' AS concurrency_group, e.value ->> '$.concurrency_limit' AS concurrency_limit, e.value ->> '$.concurrency_on_conflict' AS concurrency_on_conflict, e.value ->> '$.max_attempts' AS max_attempts, e.value ->> '$.max_crashes' AS max_crashes, e.value ->> '$.at_most_once' AS at_most_once, e.value ->> '$.traceparent' AS traceparent, e.value ->> '$.tags' AS tags, e.value ->> '$.meta' AS meta, e.value ->> '$.version' AS version, e.value ->> '$.timeout_seconds' AS timeout_seconds, e.value ->> '$.backoff_seconds' AS backoff_seconds, e.value ->> '$.backoff_cap_seconds' AS backoff_cap_seconds, e.value ->> '$.expires_in_seconds' AS expires_in_seconds, e.value ->> '$.not_after' AS not_after, e.value ->> '$.retry_for_seconds' AS retry_for_seconds, e.value ->> '$.keep_result_seconds' AS keep_result_seconds, e.value ->> '$.tenant' AS tenant, e.value ->> '$.batch_id' AS batch_id, e.value ->> '$.after_batch' AS after_batch, e.value ->> '$.runs_on' AS runs_on, e.value ->> '$.rates' AS rates FROM e) AS r
    WHERE NOT ((SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR instr(NEW.jobs, '"after_batch"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL)));
    INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, rates, gate, created_at, updated_at) SELECT coalesce(r.queue, (SELECT known.queue_name FROM windlass_classes AS known WHERE known.class_name = NEW.class), 'default'), NEW.class, coalesce(r.arguments, 'null'), coalesce(r.priority, (SELECT known.priority FROM windlass_classes AS known WHERE known.class_name = NEW.class), 0), coalesce(CASE WHEN r.max_attempts < 2147483647 THEN r.max_attempts WHEN r.max_attempts IS NOT NULL THEN 2147483647 END, CASE WHEN NOT coalesce(r.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class), 0) THEN (SELECT known.max_attempts FROM windlass_classes AS known WHERE known.class_name = NEW.class) END), coalesce(CASE WHEN r.max_crashes < 2147483647 THEN r.max_crashes WHEN r.max_crashes IS NOT NULL THEN 2147483647 END, (SELECT known.max_crashes FROM windlass_classes AS known WHERE known.class_name = NEW.class)), coalesce(r.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.delivery') IS NOT NULL), CASE WHEN coalesce(r.unique_scope, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.at_most_once) IS NULL THEN (SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) ELSE nullif('{' || substr(coalesce(',"delivery":' || CASE WHEN r.at_most_once IS NULL THEN ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.delivery') END, '') || coalesce(',"backoff":' || coalesce(CASE WHEN r.backoff_cap_seconds IS NULL THEN '{"fixed":' || CAST((CAST(CASE WHEN r.backoff_seconds > 0 AND r.backoff_seconds < 0.000001 THEN 1 ELSE round(r.backoff_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}' ELSE '{"exponential":{"first":' || CAST((CAST(CASE WHEN r.backoff_seconds > 0 AND r.backoff_seconds < 0.000001 THEN 1 ELSE round(r.backoff_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || ',"cap":' || CAST((CAST(CASE WHEN r.backoff_cap_seconds > 0 AND r.backoff_cap_seconds < 0.000001 THEN 1 ELSE round(r.backoff_cap_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}}' END, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.backoff')), '') || coalesce(',"on_failure":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.on_failure'), '') || coalesce(',"keep_finished":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.keep_finished'), '') || coalesce(',"keep_result":' || coalesce(CAST((CAST(CASE WHEN r.keep_result_seconds > 0 AND r.keep_result_seconds < 0.000001 THEN 1 ELSE round(r.keep_result_seconds * 1000000) END AS integer) + 999) / 1000 AS text), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.keep_result')), '') || coalesce(',"unique_scope":' || coalesce('"' || r.unique_scope || '"', ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.unique_scope')), '') || coalesce(',"timeout":' || coalesce(CAST((CAST(CASE WHEN r.timeout_seconds > 0 AND r.timeout_seconds < 0.000001 THEN 1 ELSE round(r.timeout_seconds * 1000000) END AS integer) + 999) / 1000 AS text), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.timeout')), '') || coalesce(',"timeout_grace":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.timeout_grace'), '') || coalesce(',"on_timeout":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.on_timeout'), '') || coalesce(',"expiry":' || coalesce(coalesce('{"in":' || CAST((CAST(CASE WHEN r.expires_in_seconds > 0 AND r.expires_in_seconds < 0.000001 THEN 1 ELSE round(r.expires_in_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}', '{"at":' || '"' || CASE WHEN CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END LIKE '%.000000' THEN substr(replace(CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T'), 1, 19) WHEN CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END LIKE '%000' THEN substr(replace(CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T'), 1, 23) ELSE replace(CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T') END || 'Z' || '"' || '}'), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.expiry')), '') || coalesce(',"retry_limit":' || coalesce('{"for":' || CAST((CAST(CASE WHEN r.retry_for_seconds > 0 AND r.retry_for_seconds < 0.000001 THEN 1 ELSE round(r.retry_for_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}', ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.retry_limit')), '') || coalesce(',"propagation_style":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.propagation_style'), '') || coalesce(',"extras":' || CASE WHEN coalesce(r.tags, r.meta, r.version) IS NULL THEN ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') ELSE nullif('{' || substr(coalesce(',"tags":' || nullif((SELECT json_group_array(value) FROM (SELECT value, min(place * 100 + key) FROM (SELECT key, value, type, fullkey, 0 AS place, r.tags AS whole FROM json_each(coalesce(r.tags, '[]')) UNION ALL SELECT key, value, type, fullkey, 1, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.tags' FROM json_each(coalesce(((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.tags', '[]'))) GROUP BY value ORDER BY 2)), '[]'), '') || coalesce(',"meta":' || nullif((SELECT json_group_object(key, json(part)) FROM (SELECT key, CASE WHEN type IN ('object', 'array') THEN value WHEN type IN ('true', 'false') THEN type ELSE coalesce(whole -> fullkey, json_quote(value)) END AS part, min(place) FROM (SELECT key, value, type, fullkey, 0 AS place, r.meta AS whole FROM json_each(coalesce(r.meta, '{}')) UNION ALL SELECT key, value, type, fullkey, 1, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.meta' FROM json_each(coalesce(((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.meta', '{}'))) GROUP BY key ORDER BY key)), '{}'), '') || CASE WHEN r.version <> 1 THEN ',"version":' || r.version ELSE '' END, 2) || '}', '{}') END, ''), 2) || '}', '{}') END, r.traceparent, r.tenant, r.batch_id, NULL, coalesce(CASE WHEN instr(r.run_at, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.run_at) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.run_at, 1, instr(r.run_at, '.') - 1) || ltrim(substr(r.run_at, instr(r.run_at, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.run_at, instr(r.run_at, '.') + 1), 1, length(substr(r.run_at, instr(r.run_at, '.') + 1)) - length(ltrim(substr(r.run_at, instr(r.run_at, '.') + 1), '0123456789'))) || '000000', 1, 6) END, strftime('%Y-%m-%d %H:%M:%f000', 'now', (CAST(round(r.delay_seconds * 1000000) AS integer) / 1000000.0) || ' seconds')), CASE WHEN r.rates IS NULL THEN (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class) ELSE (SELECT '[' || group_concat('{"key":' || json_quote(coalesce((rate.value ->> '$.key'), NEW.class)) || ',"number":' || (rate.value ->> '$.number') || ',"period":' || CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END || ',"burst":' || coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END))) || CASE WHEN (rate.value ->> '$.cost') > 1 THEN ',"cost":' || (rate.value ->> '$.cost') ELSE '' END || '}') || ']' FROM json_each(r.rates) AS rate) END, CASE WHEN r.tenant IS NULL THEN (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(r.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate) ELSE coalesce((SELECT char(29) || fair.queue_name || char(28) || r.tenant FROM windlass_fair_queues AS fair WHERE fair.queue_name = coalesce(r.queue, (SELECT known.queue_name FROM windlass_classes AS known WHERE known.class_name = NEW.class), 'default') AND NOT fair.is_ending) || coalesce(char(31) || (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(r.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate), ''), (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(r.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate)) END, strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now')
    FROM (WITH e AS MATERIALIZED (SELECT key, value FROM json_each(NEW.jobs)) SELECT key AS place, e.value -> '$.arguments' AS arguments, e.value ->> '$.queue' AS queue, e.value ->> '$.priority' AS priority, e.value ->> '$.run_at' AS run_at, e.value ->> '$.delay_seconds' AS delay_seconds, e.value ->> '$.unique_id' AS unique_id, e.value ->> '$.unique_scope' AS unique_scope, e.value ->> '$.on_conflict' AS on_conflict, e.value ->> '$.idempotency_key' AS idempotency_key, e.value ->> '$.concurrency_key' AS concurrency_key, e.value ->> '$.concurrency_group' AS concurrency_group, e.value ->> '$.concurrency_limit' AS concurrency_limit, e.value ->> '$.concurrency_on_conflict' AS concurrency_on_conflict, e.value ->> '$.max_attempts' AS max_attempts, e.value ->> '$.max_crashes' AS max_crashes, e.value ->> '$.at_most_once' AS at_most_once, e.value ->> '$.traceparent' AS traceparent, e.value ->> '$.tags' AS tags, e.value ->> '$.meta' AS meta, e.value ->> '$.version' AS version, e.value ->> '$.timeout_seconds' AS timeout_seconds, e.value ->> '$.backoff_seconds' AS backoff_seconds, e.value ->> '$.backoff_cap_seconds' AS backoff_cap_seconds, e.value ->> '$.expires_in_seconds' AS expires_in_seconds, e.value ->> '$.not_after' AS not_after, e.value ->> '$.retry_for_seconds' AS retry_for_seconds, e.value ->> '$.keep_result_seconds' AS keep_result_seconds, e.value ->> '$.tenant' AS tenant, e.value ->> '$.batch_id' AS batch_id, e.value ->> '$.after_batch' AS after_batch, e.value ->> '$.runs_on' AS runs_on, e.value ->> '$.rates' AS rates FROM e) AS r
    WHERE NOT ((SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR instr(NEW.jobs, '"after_batch"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL))) ORDER BY r.place;
    SELECT CASE WHEN NOT ((SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR instr(NEW.jobs, '"after_batch"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL))) AND changes() <> json_array_length(NEW.jobs)
        THEN RAISE(ABORT, 'cannot enqueue the jobs: a trigger of solid_queue_jobs ignores one') END;
    INSERT INTO windlass_place_jobs_v2 SELECT last_insert_rowid() - json_array_length(NEW.jobs), last_insert_rowid()
    WHERE json_array_length(NEW.jobs) > 0 AND NOT ((SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR instr(NEW.jobs, '"after_batch"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL)));
    INSERT INTO windlass_enqueue_v2 (class, arguments, queue, priority, run_at, delay_seconds, unique_id, unique_scope, on_conflict, idempotency_key, concurrency_key, concurrency_group, concurrency_limit, concurrency_on_conflict, max_attempts, max_crashes, at_most_once, traceparent, tags, meta, version, timeout_seconds, backoff_seconds, backoff_cap_seconds, expires_in_seconds, not_after, retry_for_seconds, keep_result_seconds, tenant, batch_id, after_batch, runs_on, rates) SELECT NEW.class, e.value -> '$.arguments', e.value ->> '$.queue', e.value ->> '$.priority', e.value ->> '$.run_at', e.value ->> '$.delay_seconds', e.value ->> '$.unique_id', e.value ->> '$.unique_scope', e.value ->> '$.on_conflict', e.value ->> '$.idempotency_key', e.value ->> '$.concurrency_key', e.value ->> '$.concurrency_group', e.value ->> '$.concurrency_limit', e.value ->> '$.concurrency_on_conflict', e.value ->> '$.max_attempts', e.value ->> '$.max_crashes', e.value ->> '$.at_most_once', e.value ->> '$.traceparent', e.value ->> '$.tags', e.value ->> '$.meta', e.value ->> '$.version', e.value ->> '$.timeout_seconds', e.value ->> '$.backoff_seconds', e.value ->> '$.backoff_cap_seconds', e.value ->> '$.expires_in_seconds', e.value ->> '$.not_after', e.value ->> '$.retry_for_seconds', e.value ->> '$.keep_result_seconds', e.value ->> '$.tenant', e.value ->> '$.batch_id', e.value ->> '$.after_batch', e.value ->> '$.runs_on', e.value ->> '$.rates'
    FROM json_each(NEW.jobs) AS e WHERE (SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR instr(NEW.jobs, '"after_batch"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL)) ORDER BY e.key;
END;

-- Jobs of one class that differ in their arguments alone: a JSON array of texts, each of which is JSON. The options are a job of
-- a list without arguments, and count for each of them.
CREATE VIEW IF NOT EXISTS windlass_enqueue_each_v2 AS SELECT NULL AS class, NULL AS arguments, NULL AS options WHERE false;

CREATE TRIGGER IF NOT EXISTS windlass_enqueue_each_v2_insert INSTEAD OF INSERT ON windlass_enqueue_each_v2
BEGIN
    SELECT CASE
        WHEN NEW.class IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is missing')
        WHEN typeof(NEW.class) NOT IN ('null', 'text') OR length(CAST(NEW.class AS blob)) NOT BETWEEN 1 AND 255 OR NEW.class GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(NEW.class, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`') END;
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND internal)
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is internal, so only its program''s own code enqueues it')
        WHEN EXISTS (SELECT 1 FROM windlass_settings WHERE name = 'strict_classes' AND value = 'on') AND NOT EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class)
        THEN RAISE(ABORT, 'cannot enqueue the job: no worker has stored its class, and strict_classes is on; start a worker that performs it, or correct the name') END;
    SELECT CASE WHEN NEW.arguments IS NULL OR NOT json_valid(NEW.arguments) THEN RAISE(ABORT, 'cannot enqueue the jobs: their arguments are not JSON')
        WHEN instr(NEW.arguments, char(0)) OR instr(NEW.options, char(0)) THEN RAISE(ABORT, 'cannot enqueue the jobs: they contain a NUL character')
        WHEN json_type(NEW.arguments) <> 'array' THEN RAISE(ABORT, 'cannot enqueue the jobs: their arguments are not a JSON array of texts')
        WHEN NEW.options IS NOT NULL AND NOT json_valid(NEW.options) THEN RAISE(ABORT, 'cannot enqueue the jobs: their options are not JSON')
        WHEN json_type(NEW.options) <> 'object' THEN RAISE(ABORT, 'cannot enqueue the jobs: their options are not an object') END;
    SELECT CASE WHEN (SELECT max((CASE WHEN f.key = 'arguments' THEN 0 WHEN f.key IN ('priority', 'delay_seconds', 'concurrency_limit', 'max_attempts', 'max_crashes', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'retry_for_seconds', 'keep_result_seconds', 'batch_id', 'after_batch') THEN f.type NOT IN ('integer', 'real', 'null') WHEN f.key IN ('queue', 'run_at', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_on_conflict', 'traceparent', 'not_after', 'tenant', 'runs_on') THEN f.type NOT IN ('text', 'null') WHEN f.key IN ('at_most_once') THEN f.type NOT IN ('true', 'false', 'null') WHEN f.key IN ('tags', 'rates') THEN f.type NOT IN ('array', 'null') WHEN f.key IN ('meta') THEN f.type NOT IN ('object', 'null') ELSE 1 END OR json_type(e.value, '$.' || f.key) IS NULL) OR f.key = 'arguments') OR count(*) <> count(DISTINCT f.key) FROM json_each(e.value) AS f)
        THEN coalesce((SELECT CASE
        WHEN f.key = 'queue' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its queue must be a JSON string')
        WHEN f.key = 'priority' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its priority must be a JSON number')
        WHEN f.key = 'run_at' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its run_at must be a JSON string')
        WHEN f.key = 'delay_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its delay_seconds must be a JSON number')
        WHEN f.key = 'unique_id' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_id must be a JSON string')
        WHEN f.key = 'unique_scope' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_scope must be a JSON string')
        WHEN f.key = 'on_conflict' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its on_conflict must be a JSON string')
        WHEN f.key = 'idempotency_key' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its idempotency_key must be a JSON string')
        WHEN f.key = 'concurrency_key' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key must be a JSON string')
        WHEN f.key = 'concurrency_group' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_group must be a JSON string')
        WHEN f.key = 'concurrency_limit' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_limit must be a JSON number')
        WHEN f.key = 'concurrency_on_conflict' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_on_conflict must be a JSON string')
        WHEN f.key = 'max_attempts' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_attempts must be a JSON number')
        WHEN f.key = 'max_crashes' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_crashes must be a JSON number')
        WHEN f.key = 'at_most_once' AND f.type NOT IN ('true', 'false', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its at_most_once must be true or false')
        WHEN f.key = 'traceparent' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its traceparent must be a JSON string')
        WHEN f.key = 'tags' AND f.type NOT IN ('array', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags must be a JSON array')
        WHEN f.key = 'meta' AND f.type NOT IN ('object', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta must be a JSON object')
        WHEN f.key = 'version' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its version must be a JSON number')
        WHEN f.key = 'timeout_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its timeout_seconds must be a JSON number')
        WHEN f.key = 'backoff_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_seconds must be a JSON number')
        WHEN f.key = 'backoff_cap_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_cap_seconds must be a JSON number')
        WHEN f.key = 'expires_in_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its expires_in_seconds must be a JSON number')
        WHEN f.key = 'not_after' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its not_after must be a JSON string')
        WHEN f.key = 'retry_for_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its retry_for_seconds must be a JSON number')
        WHEN f.key = 'keep_result_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its keep_result_seconds must be a JSON number')
        WHEN f.key = 'tenant' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tenant must be a JSON string')
        WHEN f.key = 'batch_id' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its batch_id must be a JSON number')
        WHEN f.key = 'after_batch' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its after_batch must be a JSON number')
        WHEN f.key = 'runs_on' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its runs_on must be a JSON string')
        WHEN f.key = 'rates' AND f.type NOT IN ('array', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates must be a JSON array')
        ELSE RAISE(ABORT, 'cannot enqueue the jobs: one of the list has a key that is no column of windlass_enqueue') END FROM json_each(e.value) AS f WHERE (CASE WHEN f.key = 'arguments' THEN 0 WHEN f.key IN ('priority', 'delay_seconds', 'concurrency_limit', 'max_attempts', 'max_crashes', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'retry_for_seconds', 'keep_result_seconds', 'batch_id', 'after_batch') THEN f.type NOT IN ('integer', 'real', 'null') WHEN f.key IN ('queue', 'run_at', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_on_conflict', 'traceparent', 'not_after', 'tenant', 'runs_on') THEN f.type NOT IN ('text', 'null') WHEN f.key IN ('at_most_once') THEN f.type NOT IN ('true', 'false', 'null') WHEN f.key IN ('tags', 'rates') THEN f.type NOT IN ('array', 'null') WHEN f.key IN ('meta') THEN f.type NOT IN ('object', 'null') ELSE 1 END OR json_type(e.value, '$.' || f.key) IS NULL) OR f.key = 'arguments'),
            RAISE(ABORT, 'cannot enqueue the jobs: their options name a key twice')) END
    FROM (SELECT coalesce(NEW.options, '{}') AS value) AS e;
    SELECT CASE
        WHEN typeof(r.queue) NOT IN ('null', 'text') OR length(CAST(r.queue AS blob)) NOT BETWEEN 1 AND 255 OR r.queue GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(r.queue, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`')
        WHEN typeof(r.priority) NOT IN ('null', 'integer') OR r.priority NOT BETWEEN -2147483648 AND 2147483647
        THEN RAISE(ABORT, 'cannot enqueue the job: its priority must be an integer of 32 bits')
        WHEN typeof(r.arguments) NOT IN ('null', 'text') OR coalesce(length(CAST(r.arguments AS blob)), 0) + coalesce(length(CAST(r.tags AS blob)) + 9, 0) + coalesce(length(CAST(r.meta AS blob)) + 9, 0) > coalesce((SELECT known.max_arguments FROM windlass_classes AS known WHERE known.class_name = NEW.class), 65536)
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference')
        WHEN instr(r.arguments, char(0)) > 0 OR instr(replace(r.arguments, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.arguments) - length(replace(replace(r.arguments, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.arguments, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.arguments GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a text has half of a surrogate pair')
        WHEN (r.arguments GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.arguments GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.arguments) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN coalesce(r.run_at, r.delay_seconds, r.unique_id, r.unique_scope, r.on_conflict, r.idempotency_key, r.concurrency_key, r.concurrency_group, r.concurrency_limit, r.concurrency_on_conflict, r.max_attempts, r.max_crashes, r.at_most_once, r.traceparent, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.tenant, r.batch_id, r.after_batch, r.runs_on, r.rates) IS NULL THEN NULL
        WHEN typeof(r.idempotency_key) NOT IN ('null', 'text') OR length(CAST(r.idempotency_key AS blob)) NOT BETWEEN 1 AND 255 OR instr(r.idempotency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its idempotency_key must have 1 to 255 bytes and no NUL')
        WHEN typeof(r.unique_id) NOT IN ('null', 'text') OR length(CAST(r.unique_id AS blob)) NOT BETWEEN 1 AND 255 OR instr(r.unique_id, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_id must have 1 to 255 bytes and no NUL')
        WHEN r.unique_scope NOT IN ('while_waiting', 'until_finished', 'until_result_expires')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_scope must be one of while_waiting, until_finished, until_result_expires')
        WHEN r.on_conflict NOT IN ('existing', 'refuse', 'replace', 'run_again')
        THEN RAISE(ABORT, 'cannot enqueue the job: its on_conflict must be one of existing, refuse, replace, run_again')
        WHEN r.concurrency_on_conflict NOT IN ('block', 'discard', 'ordered')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_on_conflict must be one of block, discard, ordered')
        WHEN typeof(r.concurrency_key) NOT IN ('null', 'text') OR typeof(r.concurrency_group) NOT IN ('null', 'text') OR r.concurrency_key = '' OR r.concurrency_group = '' OR length(CAST(coalesce(r.concurrency_group, NEW.class) || '/' || r.concurrency_key AS blob)) > 255 OR instr(coalesce(r.concurrency_group, NEW.class) || '/' || r.concurrency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key and concurrency_group must not be empty, have at most 255 bytes together, and no NUL')
        WHEN r.concurrency_key IS NULL AND (r.concurrency_limit IS NOT NULL OR r.concurrency_group IS NOT NULL OR r.concurrency_on_conflict IS NOT NULL)
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key is missing, without which there is no limit')
        WHEN typeof(r.concurrency_limit) NOT IN ('null', 'integer') OR r.concurrency_limit < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_limit must be 1 or more; pause its queue to stop its jobs')
        WHEN r.concurrency_on_conflict = 'ordered' AND r.concurrency_limit <> 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency key is ordered, so its concurrency_limit must be 1')
        WHEN r.run_at IS NOT NULL AND r.delay_seconds IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it has both run_at and delay_seconds; choose one')
        WHEN r.run_at IS NOT NULL AND (typeof(r.run_at) <> 'text' OR r.run_at NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' OR date(substr(r.run_at, 1, 10), '+0 days') IS NOT substr(r.run_at, 1, 10) OR datetime(r.run_at) IS NULL OR datetime(r.run_at) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr(r.run_at, 12, 2) = '24' OR instr(r.run_at, char(0)) > 0 OR (length(r.run_at) > 10 AND substr(r.run_at, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') OR NOT (ltrim(substr(r.run_at, 12), '0123456789:.') IN ('', 'Z') OR ltrim(substr(r.run_at, 12), '0123456789:.') GLOB '[+-][0-9][0-9]:[0-9][0-9]'))
        THEN RAISE(ABORT, 'cannot enqueue the job: its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z')
        WHEN typeof(r.delay_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.delay_seconds >= 0 AND r.delay_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its delay_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.max_attempts) NOT IN ('null', 'integer') OR r.max_attempts < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_attempts must be an integer, 1 or more')
        WHEN typeof(r.max_crashes) NOT IN ('null', 'integer') OR r.max_crashes < 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_crashes must be an integer, 0 or more')
        WHEN typeof(r.version) NOT IN ('null', 'integer') OR r.version < 1 OR r.version > 4294967295
        THEN RAISE(ABORT, 'cannot enqueue the job: its version must be an integer, 1 or more and at most 4294967295')
        WHEN r.at_most_once NOT IN (0, 1)
        THEN RAISE(ABORT, 'cannot enqueue the job: its at_most_once must be true or false')
        WHEN coalesce(r.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class)) AND r.max_attempts > 1
        THEN RAISE(ABORT, 'cannot enqueue the job: it has at-most-once delivery and more than one attempt; choose one')
        WHEN typeof(r.traceparent) NOT IN ('null', 'text') OR instr(r.traceparent, char(0)) > 0 OR length(CAST(r.traceparent AS blob)) > 255 OR substr(r.traceparent, 4, 32) = '00000000000000000000000000000000' OR substr(r.traceparent, 37, 16) = '0000000000000000' OR r.traceparent GLOB 'ff*' OR (r.traceparent GLOB '00*' AND length(r.traceparent) <> 55) OR (r.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]' AND r.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]-*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its traceparent is not one of W3C Trace Context; pass the header as it is, `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits')
        WHEN typeof(r.tags) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags must be JSON text')
        WHEN instr(r.tags, char(0)) > 0 OR instr(replace(r.tags, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.tags) - length(replace(replace(r.tags, '[', ''), '{', '')) > 119 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.tags, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 119) SELECT max(depth) FROM level) > 119
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags are nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.tags GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.tags, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.tags, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags could not be read again: a text has half of a surrogate pair')
        WHEN (r.tags GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.tags GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.tags) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN typeof(r.meta) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta must be JSON text')
        WHEN instr(r.meta, char(0)) > 0 OR instr(replace(r.meta, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta contains a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.meta) - length(replace(replace(r.meta, '[', ''), '{', '')) > 119 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.meta, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 119) SELECT max(depth) FROM level) > 119
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta is nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.meta GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.meta, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.meta, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta could not be read again: a text has half of a surrogate pair')
        WHEN (r.meta GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.meta GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.meta) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN json_type(r.tags) <> 'array' OR (SELECT count(DISTINCT tag.value) > 32 OR max(tag.type <> 'text' OR length(CAST(tag.value AS blob)) NOT BETWEEN 1 AND 100) FROM json_each(r.tags) AS tag)
        THEN RAISE(ABORT, 'cannot enqueue the job: its tags must be a JSON array of at most 32 texts, each of 1 to 100 bytes and without NUL')
        WHEN json_type(r.meta) <> 'object' OR (SELECT count(DISTINCT part.key) > 32 OR count(*) <> count(DISTINCT part.key) OR max(length(CAST(part.key AS blob)) NOT BETWEEN 1 AND 100) FROM json_each(r.meta) AS part)
        THEN RAISE(ABORT, 'cannot enqueue the job: its meta must be a JSON object of at most 32 keys, each of 1 to 100 bytes and without NUL')
        WHEN typeof(r.timeout_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.timeout_seconds >= 0 AND r.timeout_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its timeout_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.keep_result_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.keep_result_seconds >= 0 AND r.keep_result_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its keep_result_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.backoff_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.backoff_seconds >= 0 AND r.backoff_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.backoff_cap_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.backoff_cap_seconds >= 0 AND r.backoff_cap_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_cap_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.expires_in_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.expires_in_seconds > 0 AND r.expires_in_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its expires_in_seconds must be above 0, and at most 1000 years')
        WHEN typeof(r.retry_for_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.retry_for_seconds > 0 AND r.retry_for_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its retry_for_seconds must be above 0, and at most 1000 years')
        WHEN r.backoff_cap_seconds IS NOT NULL AND r.backoff_seconds IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its backoff_seconds is missing, the first delay, without which there is no cap')
        WHEN r.not_after IS NOT NULL AND r.expires_in_seconds IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it has both not_after and expires_in_seconds; choose one')
        WHEN r.not_after IS NOT NULL AND (typeof(r.not_after) <> 'text' OR r.not_after NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' OR date(substr(r.not_after, 1, 10), '+0 days') IS NOT substr(r.not_after, 1, 10) OR datetime(r.not_after) IS NULL OR datetime(r.not_after) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr(r.not_after, 12, 2) = '24' OR instr(r.not_after, char(0)) > 0 OR (length(r.not_after) > 10 AND substr(r.not_after, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') OR NOT (ltrim(substr(r.not_after, 12), '0123456789:.') IN ('', 'Z') OR ltrim(substr(r.not_after, 12), '0123456789:.') GLOB '[+-][0-9][0-9]:[0-9][0-9]'))
        THEN RAISE(ABORT, 'cannot enqueue the job: its not_after must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z')
        WHEN julianday(r.not_after) <= julianday(r.run_at)
        THEN RAISE(ABORT, 'cannot enqueue the job: it would expire before it is due: its not_after is not behind its run_at')
        WHEN typeof(r.tenant) NOT IN ('null', 'text') OR length(CAST(r.tenant AS blob)) NOT BETWEEN 1 AND 255 OR instr(r.tenant, char(0)) > 0 OR r.tenant GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        THEN RAISE(ABORT, 'cannot enqueue the job: its tenant must have 1 to 255 bytes and no control character')
        WHEN r.runs_on NOT IN ('success', 'failure', 'finish')
        THEN RAISE(ABORT, 'cannot enqueue the job: its runs_on must be one of success, failure, finish')
        WHEN r.runs_on IS NOT NULL AND r.after_batch IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its after_batch is missing, whose outcome its runs_on names')
        WHEN r.after_batch IS NOT NULL AND r.unique_id IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it waits for a batch, and cannot have a unique_id')
        WHEN r.after_batch = r.batch_id
        THEN RAISE(ABORT, 'cannot enqueue the job: it waits for its own batch, which could not end')
        WHEN r.batch_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = r.batch_id AND b.active_job_batch_id LIKE 'windlass-%')
        THEN RAISE(ABORT, 'cannot enqueue the job: there is no batch of its batch_id')
        WHEN r.after_batch IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = r.after_batch AND b.active_job_batch_id LIKE 'windlass-%')
        THEN RAISE(ABORT, 'cannot enqueue the job: there is no batch of its after_batch')
        WHEN EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = r.batch_id AND b.finished_at IS NOT NULL AND NOT (SELECT e.job_id FROM solid_queue_batch_executions e WHERE e.batch_id = b.id ORDER BY e.job_id DESC LIMIT 1) IS NOT NULL)
        THEN RAISE(ABORT, 'cannot enqueue the job: the batch of its batch_id is over')
        WHEN typeof(r.rates) NOT IN ('null', 'text')
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates must be JSON text')
        WHEN instr(r.rates, char(0)) > 0 OR instr(replace(r.rates, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.rates) - length(replace(replace(r.rates, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.rates, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.rates GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.rates, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.rates, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates could not be read again: a text has half of a surrogate pair')
        WHEN (r.rates GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.rates GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.rates) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN json_type(r.rates) <> 'array' OR json_array_length(r.rates) > 4 OR (SELECT max(CASE WHEN rate.type <> 'object' THEN 1 ELSE (SELECT count(*) <> count(DISTINCT part.key) OR max(part.key NOT IN ('number', 'period', 'burst', 'key', 'cost')) FROM json_each(rate.value) AS part) END) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: its rates must be a JSON array of at most 4 objects, each with a number and a period, and maybe with a burst, a key and a cost')
        WHEN (SELECT max(coalesce(json_type(rate.value, '$.key'), 'null') NOT IN ('text', 'null') OR length(CAST(rate.value ->> '$.key' AS blob)) NOT BETWEEN 1 AND 255 OR rate.value ->> '$.key' GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*') FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the key of its rate must have 1 to 255 bytes and no control character')
        WHEN (SELECT max(CASE json_type(rate.value, '$.period') WHEN 'text' THEN rate.value ->> '$.period' NOT IN ('second', 'minute', 'hour', 'day') WHEN 'integer' THEN rate.value ->> '$.period' NOT BETWEEN 1 AND 86400000000 ELSE 1 END) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the period of its rate must be second, minute, hour or day, or an integer of microseconds from 1 to 86400000000')
        WHEN (SELECT max(coalesce(json_type(rate.value, '$.number'), 'null') NOT IN ('integer') OR rate.value ->> '$.number' NOT BETWEEN 1 AND 10000000 OR coalesce(json_type(rate.value, '$.burst'), 'null') NOT IN ('integer', 'null') OR rate.value ->> '$.burst' NOT BETWEEN 1 AND 10000000 OR coalesce(json_type(rate.value, '$.cost'), 'null') NOT IN ('integer', 'null') OR rate.value ->> '$.cost' NOT BETWEEN 1 AND 10000000 OR coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END))) > 10000000) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: the number, the burst and the cost of its rate must be integers from 1 to 10000000, and so must the burst that its number makes')
        WHEN (SELECT max(rate.value ->> '$.cost' > coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END)))) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: it costs more starts than the burst of its rate, so it could never start; raise the burst, or split the job')
        WHEN (SELECT count(*) <> count(DISTINCT coalesce(rate.value ->> '$.key', NEW.class)) FROM json_each(r.rates) AS rate)
        THEN RAISE(ABORT, 'cannot enqueue the job: two of its rates have the same key') END FROM (WITH e AS MATERIALIZED (SELECT coalesce(NEW.options, '{}') AS value) SELECT e.value -> '$.arguments' AS arguments, e.value ->> '$.queue' AS queue, e.value ->> '$.priority' AS priority, e.value ->> '$.run_at' AS run_at, e.value ->> '$.delay_seconds' AS delay_seconds, e.value ->> '$.unique_id' AS unique_id, e.value ->> '$.unique_scope' AS unique_scope, e.value ->> '$.on_conflict' AS on_conflict, e.value ->> '$.idempotency_key' AS idempotency_key, e.value ->> '$.concurrency_key' AS concurrency_key, e.value ->> '$.concurrency_group' AS concurrency_group, e.value ->> '$.concurrency_limit' AS concurrency_limit, e.value ->> '$.concurrency_on_conflict' AS concurrency_on_conflict, e.value ->> '$.max_attempts' AS max_attempts, e.value ->> '$.max_crashes' AS max_crashes, e.value ->> '$.at_most_once' AS at_most_once, e.value ->> '$.traceparent' AS traceparent, e.value ->> '$.tags' AS tags, e.value ->> '$.meta' AS meta, e.value ->> '$.version' AS version, e.value ->> '$.timeout_seconds' AS timeout_seconds, e.value ->> '$.backoff_seconds' AS backoff_seconds, e.value ->> '$.backoff_cap_seconds' AS backoff_cap_seconds, e.value ->> '$.expires_in_seconds' AS expires_in_seconds, e.value ->> '$.not_after' AS not_after, e.value ->> '$.retry_for_seconds' AS retry_for_seconds, e.value ->> '$.keep_result_seconds' AS keep_result_seconds, e.value ->> '$.tenant' AS tenant, e.value ->> '$.batch_id' AS batch_id, e.value ->> '$.after_batch' AS after_batch, e.value ->> '$.runs_on' AS runs_on, e.value ->> '$.rates' AS rates FROM e) AS r;
    SELECT RAISE(ABORT, 'cannot enqueue the jobs: their options name one job: enqueue it alone, or use a list')
    WHERE json_array_length(NEW.arguments) > 1 AND (json_type(NEW.options, '$.unique_id') IS NOT NULL OR json_type(NEW.options, '$.idempotency_key') IS NOT NULL);
    -- Most arguments need no look at each.
    SELECT CASE WHEN t.type <> 'text' THEN RAISE(ABORT, 'cannot enqueue the jobs: their arguments are not a JSON array of texts')
        ELSE CASE
        WHEN typeof(t.value) NOT IN ('null', 'text') OR coalesce(length(CAST(t.value AS blob)), 0) + coalesce(length(CAST((NEW.options ->> '$.tags') AS blob)) + 9, 0) + coalesce(length(CAST((NEW.options ->> '$.meta') AS blob)) + 9, 0) > coalesce((SELECT known.max_arguments FROM windlass_classes AS known WHERE known.class_name = NEW.class), 65536)
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference')
        WHEN t.value IS NOT NULL AND NOT json_valid(t.value)
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are not JSON')
        WHEN instr(t.value, char(0)) > 0 OR instr(replace(t.value, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(t.value) - length(replace(replace(t.value, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT t.value, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN t.value GLOB '*\u[dD][89a-fA-F]*' AND (replace(t.value, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(t.value, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(t.value, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(t.value, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(t.value, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(t.value, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(t.value, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(t.value, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(t.value, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(t.value, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a text has half of a surrogate pair')
        WHEN (t.value GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR t.value GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(t.value) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text') END END FROM json_each(NEW.arguments) AS t
    WHERE (SELECT instr(NEW.arguments, '\u') OR NEW.arguments GLOB '*[0-9][eE]*' OR NEW.arguments GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR json_type(NEW.options, '$.tags') IS NOT NULL OR json_type(NEW.options, '$.meta') IS NOT NULL OR max(length(CAST(s.value AS blob))) > min(240, coalesce((SELECT known.max_arguments FROM windlass_classes AS known WHERE known.class_name = NEW.class), 240)) FROM json_each(NEW.arguments) AS s) OR t.type <> 'text' OR NOT json_valid(t.value);
    INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, rates, gate, created_at, updated_at)
    WITH e AS MATERIALIZED (SELECT coalesce(NEW.options, '{}') AS value), r AS MATERIALIZED (SELECT e.value -> '$.arguments' AS arguments, e.value ->> '$.queue' AS queue, e.value ->> '$.priority' AS priority, e.value ->> '$.run_at' AS run_at, e.value ->> '$.delay_seconds' AS delay_seconds, e.value ->> '$.unique_id' AS unique_id, e.value ->> '$.unique_scope' AS unique_scope, e.value ->> '$.on_conflict' AS on_conflict, e.value ->> '$.idempotency_key' AS idempotency_key, e.value ->> '$.concurrency_key' AS concurrency_key, e.value ->> '$.concurrency_group' AS concurrency_group, e.value ->> '$.concurrency_limit' AS concurrency_limit, e.value ->> '$.concurrency_on_conflict' AS concurrency_on_conflict, e.value ->> '$.max_attempts' AS max_attempts, e.value ->> '$.max_crashes' AS max_crashes, e.value ->> '$.at_most_once' AS at_most_once, e.value ->> '$.traceparent' AS traceparent, e.value ->> '$.tags' AS tags, e.value ->> '$.meta' AS meta, e.value ->> '$.version' AS version, e.value ->> '$.timeout_seconds' AS timeout_seconds, e.value ->> '$.backoff_seconds' AS backoff_seconds, e.value ->> '$.backoff_cap_seconds' AS backoff_cap_seconds, e.value ->> '$.expires_in_seconds' AS expires_in_seconds, e.value ->> '$.not_after' AS not_after, e.value ->> '$.retry_for_seconds' AS retry_for_seconds, e.value ->> '$.keep_result_seconds' AS keep_result_seconds, e.value ->> '$.tenant' AS tenant, e.value ->> '$.batch_id' AS batch_id, e.value ->> '$.after_batch' AS after_batch, e.value ->> '$.runs_on' AS runs_on, e.value ->> '$.rates' AS rates FROM e),
    v (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, rates, gate, created_at, updated_at) AS MATERIALIZED (SELECT coalesce(r.queue, (SELECT known.queue_name FROM windlass_classes AS known WHERE known.class_name = NEW.class), 'default'), NEW.class, coalesce(r.arguments, 'null'), coalesce(r.priority, (SELECT known.priority FROM windlass_classes AS known WHERE known.class_name = NEW.class), 0), coalesce(CASE WHEN r.max_attempts < 2147483647 THEN r.max_attempts WHEN r.max_attempts IS NOT NULL THEN 2147483647 END, CASE WHEN NOT coalesce(r.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class), 0) THEN (SELECT known.max_attempts FROM windlass_classes AS known WHERE known.class_name = NEW.class) END), coalesce(CASE WHEN r.max_crashes < 2147483647 THEN r.max_crashes WHEN r.max_crashes IS NOT NULL THEN 2147483647 END, (SELECT known.max_crashes FROM windlass_classes AS known WHERE known.class_name = NEW.class)), coalesce(r.at_most_once, (SELECT known.at_most_once FROM windlass_classes AS known WHERE known.class_name = NEW.class), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.delivery') IS NOT NULL), CASE WHEN coalesce(r.unique_scope, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.at_most_once) IS NULL THEN (SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) ELSE nullif('{' || substr(coalesce(',"delivery":' || CASE WHEN r.at_most_once IS NULL THEN ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.delivery') END, '') || coalesce(',"backoff":' || coalesce(CASE WHEN r.backoff_cap_seconds IS NULL THEN '{"fixed":' || CAST((CAST(CASE WHEN r.backoff_seconds > 0 AND r.backoff_seconds < 0.000001 THEN 1 ELSE round(r.backoff_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}' ELSE '{"exponential":{"first":' || CAST((CAST(CASE WHEN r.backoff_seconds > 0 AND r.backoff_seconds < 0.000001 THEN 1 ELSE round(r.backoff_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || ',"cap":' || CAST((CAST(CASE WHEN r.backoff_cap_seconds > 0 AND r.backoff_cap_seconds < 0.000001 THEN 1 ELSE round(r.backoff_cap_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}}' END, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.backoff')), '') || coalesce(',"on_failure":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.on_failure'), '') || coalesce(',"keep_finished":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.keep_finished'), '') || coalesce(',"keep_result":' || coalesce(CAST((CAST(CASE WHEN r.keep_result_seconds > 0 AND r.keep_result_seconds < 0.000001 THEN 1 ELSE round(r.keep_result_seconds * 1000000) END AS integer) + 999) / 1000 AS text), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.keep_result')), '') || coalesce(',"unique_scope":' || coalesce('"' || r.unique_scope || '"', ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.unique_scope')), '') || coalesce(',"timeout":' || coalesce(CAST((CAST(CASE WHEN r.timeout_seconds > 0 AND r.timeout_seconds < 0.000001 THEN 1 ELSE round(r.timeout_seconds * 1000000) END AS integer) + 999) / 1000 AS text), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.timeout')), '') || coalesce(',"timeout_grace":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.timeout_grace'), '') || coalesce(',"on_timeout":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.on_timeout'), '') || coalesce(',"expiry":' || coalesce(coalesce('{"in":' || CAST((CAST(CASE WHEN r.expires_in_seconds > 0 AND r.expires_in_seconds < 0.000001 THEN 1 ELSE round(r.expires_in_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}', '{"at":' || '"' || CASE WHEN CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END LIKE '%.000000' THEN substr(replace(CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T'), 1, 19) WHEN CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END LIKE '%000' THEN substr(replace(CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T'), 1, 23) ELSE replace(CASE WHEN instr(r.not_after, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.not_after) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.not_after, 1, instr(r.not_after, '.') - 1) || ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.not_after, instr(r.not_after, '.') + 1), 1, length(substr(r.not_after, instr(r.not_after, '.') + 1)) - length(ltrim(substr(r.not_after, instr(r.not_after, '.') + 1), '0123456789'))) || '000000', 1, 6) END, ' ', 'T') END || 'Z' || '"' || '}'), ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.expiry')), '') || coalesce(',"retry_limit":' || coalesce('{"for":' || CAST((CAST(CASE WHEN r.retry_for_seconds > 0 AND r.retry_for_seconds < 0.000001 THEN 1 ELSE round(r.retry_for_seconds * 1000000) END AS integer) + 999) / 1000 AS text) || '}', ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.retry_limit')), '') || coalesce(',"propagation_style":' || ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.propagation_style'), '') || coalesce(',"extras":' || CASE WHEN coalesce(r.tags, r.meta, r.version) IS NULL THEN ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') ELSE nullif('{' || substr(coalesce(',"tags":' || nullif((SELECT json_group_array(value) FROM (SELECT value, min(place * 100 + key) FROM (SELECT key, value, type, fullkey, 0 AS place, r.tags AS whole FROM json_each(coalesce(r.tags, '[]')) UNION ALL SELECT key, value, type, fullkey, 1, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.tags' FROM json_each(coalesce(((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.tags', '[]'))) GROUP BY value ORDER BY 2)), '[]'), '') || coalesce(',"meta":' || nullif((SELECT json_group_object(key, json(part)) FROM (SELECT key, CASE WHEN type IN ('object', 'array') THEN value WHEN type IN ('true', 'false') THEN type ELSE coalesce(whole -> fullkey, json_quote(value)) END AS part, min(place) FROM (SELECT key, value, type, fullkey, 0 AS place, r.meta AS whole FROM json_each(coalesce(r.meta, '{}')) UNION ALL SELECT key, value, type, fullkey, 1, ((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.meta' FROM json_each(coalesce(((SELECT known.policy FROM windlass_classes AS known WHERE known.class_name = NEW.class) -> '$.extras') -> '$.meta', '{}'))) GROUP BY key ORDER BY key)), '{}'), '') || CASE WHEN r.version <> 1 THEN ',"version":' || r.version ELSE '' END, 2) || '}', '{}') END, ''), 2) || '}', '{}') END, r.traceparent, r.tenant, r.batch_id, NULL, coalesce(CASE WHEN instr(r.run_at, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.run_at) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.run_at, 1, instr(r.run_at, '.') - 1) || ltrim(substr(r.run_at, instr(r.run_at, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.run_at, instr(r.run_at, '.') + 1), 1, length(substr(r.run_at, instr(r.run_at, '.') + 1)) - length(ltrim(substr(r.run_at, instr(r.run_at, '.') + 1), '0123456789'))) || '000000', 1, 6) END, strftime('%Y-%m-%d %H:%M:%f000', 'now', (CAST(round(r.delay_seconds * 1000000) AS integer) / 1000000.0) || ' seconds')), CASE WHEN r.rates IS NULL THEN (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class) ELSE (SELECT '[' || group_concat('{"key":' || json_quote(coalesce((rate.value ->> '$.key'), NEW.class)) || ',"number":' || (rate.value ->> '$.number') || ',"period":' || CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END || ',"burst":' || coalesce((rate.value ->> '$.burst'), max(1, coalesce((rate.value ->> '$.cost'), 1), (rate.value ->> '$.number') * 100000 / (CASE rate.value ->> '$.period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE (rate.value ->> '$.period') END))) || CASE WHEN (rate.value ->> '$.cost') > 1 THEN ',"cost":' || (rate.value ->> '$.cost') ELSE '' END || '}') || ']' FROM json_each(r.rates) AS rate) END, CASE WHEN r.tenant IS NULL THEN (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(r.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate) ELSE coalesce((SELECT char(29) || fair.queue_name || char(28) || r.tenant FROM windlass_fair_queues AS fair WHERE fair.queue_name = coalesce(r.queue, (SELECT known.queue_name FROM windlass_classes AS known WHERE known.class_name = NEW.class), 'default') AND NOT fair.is_ending) || coalesce(char(31) || (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(r.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate), ''), (SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each(coalesce(r.rates, (SELECT known.rates FROM windlass_classes AS known WHERE known.class_name = NEW.class))) AS rate)) END, strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now') FROM r)
    SELECT v.queue_name, v.class_name, t.value, v.priority, v.max_attempts, v.max_crashes, v.at_most_once, v.policy, v.traceparent, v.tenant, v.batch_id, v.active_job_id, v.scheduled_at, v.rates, v.gate, v.created_at, v.updated_at FROM json_each(NEW.arguments) AS t CROSS JOIN v WHERE NOT ((SELECT json_type(NEW.options, '$.unique_id') IS NOT NULL OR json_type(NEW.options, '$.idempotency_key') IS NOT NULL OR json_type(NEW.options, '$.concurrency_key') IS NOT NULL OR json_type(NEW.options, '$.after_batch') IS NOT NULL OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL))) ORDER BY t.key;
    SELECT CASE WHEN NOT ((SELECT json_type(NEW.options, '$.unique_id') IS NOT NULL OR json_type(NEW.options, '$.idempotency_key') IS NOT NULL OR json_type(NEW.options, '$.concurrency_key') IS NOT NULL OR json_type(NEW.options, '$.after_batch') IS NOT NULL OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL))) AND changes() <> json_array_length(NEW.arguments)
        THEN RAISE(ABORT, 'cannot enqueue the jobs: a trigger of solid_queue_jobs ignores one') END;
    INSERT INTO windlass_place_jobs_v2 SELECT last_insert_rowid() - json_array_length(NEW.arguments), last_insert_rowid()
    WHERE json_array_length(NEW.arguments) > 0 AND NOT ((SELECT json_type(NEW.options, '$.unique_id') IS NOT NULL OR json_type(NEW.options, '$.idempotency_key') IS NOT NULL OR json_type(NEW.options, '$.concurrency_key') IS NOT NULL OR json_type(NEW.options, '$.after_batch') IS NOT NULL OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL)));
    INSERT INTO windlass_enqueue_v2 (class, arguments, queue, priority, run_at, delay_seconds, unique_id, unique_scope, on_conflict, idempotency_key, concurrency_key, concurrency_group, concurrency_limit, concurrency_on_conflict, max_attempts, max_crashes, at_most_once, traceparent, tags, meta, version, timeout_seconds, backoff_seconds, backoff_cap_seconds, expires_in_seconds, not_after, retry_for_seconds, keep_result_seconds, tenant, batch_id, after_batch, runs_on, rates) SELECT NEW.class, t.value, e.value ->> '$.queue', e.value ->> '$.priority', e.value ->> '$.run_at', e.value ->> '$.delay_seconds', e.value ->> '$.unique_id', e.value ->> '$.unique_scope', e.value ->> '$.on_conflict', e.value ->> '$.idempotency_key', e.value ->> '$.concurrency_key', e.value ->> '$.concurrency_group', e.value ->> '$.concurrency_limit', e.value ->> '$.concurrency_on_conflict', e.value ->> '$.max_attempts', e.value ->> '$.max_crashes', e.value ->> '$.at_most_once', e.value ->> '$.traceparent', e.value ->> '$.tags', e.value ->> '$.meta', e.value ->> '$.version', e.value ->> '$.timeout_seconds', e.value ->> '$.backoff_seconds', e.value ->> '$.backoff_cap_seconds', e.value ->> '$.expires_in_seconds', e.value ->> '$.not_after', e.value ->> '$.retry_for_seconds', e.value ->> '$.keep_result_seconds', e.value ->> '$.tenant', e.value ->> '$.batch_id', e.value ->> '$.after_batch', e.value ->> '$.runs_on', e.value ->> '$.rates'
    FROM json_each(NEW.arguments) AS t, (SELECT coalesce(NEW.options, '{}') AS value) AS e WHERE (SELECT json_type(NEW.options, '$.unique_id') IS NOT NULL OR json_type(NEW.options, '$.idempotency_key') IS NOT NULL OR json_type(NEW.options, '$.concurrency_key') IS NOT NULL OR json_type(NEW.options, '$.after_batch') IS NOT NULL OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL)) ORDER BY t.key;
END;

-- Makes new jobs without name and limit ready or scheduled.
CREATE TRIGGER IF NOT EXISTS windlass_place_jobs_v2_insert INSTEAD OF INSERT ON windlass_place_jobs_v2
BEGIN
    INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, min(coalesce(CASE WHEN instr((j.policy ->> '$.expiry.at'), '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', (j.policy ->> '$.expiry.at')) ELSE strftime('%Y-%m-%d %H:%M:%S', substr((j.policy ->> '$.expiry.at'), 1, instr((j.policy ->> '$.expiry.at'), '.') - 1) || ltrim(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), '0123456789')) || '.' || substr(substr(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), 1, length(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1)) - length(ltrim(substr((j.policy ->> '$.expiry.at'), instr((j.policy ->> '$.expiry.at'), '.') + 1), '0123456789'))) || '000000', 1, 6) END, strftime('%Y-%m-%d %H:%M:%f000', max(coalesce(j.scheduled_at, strftime('%Y-%m-%d %H:%M:%f000', 'now')), strftime('%Y-%m-%d %H:%M:%f000', 'now')), (min(j.policy ->> '$.expiry.in', 31622400000000) / 1000.0) || ' seconds'), '9999-12-30 00:00:00.000000'), '9999-12-30 00:00:00.000000') FROM solid_queue_jobs AS j WHERE j.policy LIKE '%"expiry":%' AND j.policy -> '$.expiry' IS NOT NULL AND j.id > NEW.after_id AND j.id <= NEW.up_to ORDER BY j.id;
    INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
    SELECT id, queue_name, priority, class_name, (at_most_once OR crash_count > 0 OR coalesce(max_crashes = 0, false)), created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND gate IS NULL AND (scheduled_at IS NULL OR scheduled_at <= created_at) ORDER BY id;
    INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at)
    SELECT id, queue_name, priority, '    ', gate, '9999-12-31 23:59:59.000000', created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND gate IS NOT NULL AND (scheduled_at IS NULL OR scheduled_at <= created_at) ORDER BY id;
    INSERT INTO windlass_wanted_keys (kind, name) SELECT DISTINCT 'gate', gate FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND gate IS NOT NULL AND (scheduled_at IS NULL OR scheduled_at <= created_at);
    INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
    SELECT id, queue_name, priority, scheduled_at, created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND scheduled_at > created_at ORDER BY id;
    INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) SELECT id, batch_id, created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND batch_id IS NOT NULL ORDER BY id;
    INSERT INTO windlass_wanted_keys (kind, target_id, amount) SELECT 'batch', batch_id, count(*) FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND batch_id IS NOT NULL GROUP BY batch_id;
END;

CREATE TRIGGER IF NOT EXISTS windlass_enqueue_many_insert INSTEAD OF INSERT ON windlass_enqueue_many
BEGIN
    INSERT INTO windlass_enqueue_many_v2 VALUES (NEW.class, NEW.jobs);
END;

-- Emits an event, as Rust does: jobs that wait for it run again, with its payload. An event stays: emitted once more with the
-- same payload it changes nothing, and another payload is refused.
CREATE VIEW IF NOT EXISTS windlass_events_emit AS SELECT NULL AS name, NULL AS payload WHERE false;

CREATE TRIGGER IF NOT EXISTS windlass_events_emit_insert INSTEAD OF INSERT ON windlass_events_emit
BEGIN
    SELECT CASE
        WHEN NEW.name IS NULL OR typeof(NEW.name) NOT IN ('null', 'text') OR length(CAST(NEW.name AS blob)) NOT BETWEEN 1 AND 255 OR instr(NEW.name, char(0)) > 0
        THEN RAISE(ABORT, 'cannot emit the event: its name must have 1 to 255 bytes and no NUL')
        WHEN typeof(NEW.payload) NOT IN ('null', 'text') OR (length(CAST(NEW.payload AS blob)) > 65536 AND length(CAST(NEW.payload AS blob)) > coalesce((SELECT CAST(s.value AS integer) FROM windlass_settings AS s WHERE s.name = 'max_event_payload'), 0))
        THEN RAISE(ABORT, 'cannot emit the event: its payload must be JSON text of at most 65536 bytes, or as many as `windlass events max` has set; store the data elsewhere and pass a reference')
        WHEN NEW.payload IS NOT NULL AND NOT json_valid(NEW.payload)
        THEN RAISE(ABORT, 'cannot emit the event: its payload is not JSON')
        WHEN instr(NEW.payload, char(0)) > 0 OR instr(replace(NEW.payload, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot emit the event: its payload contains a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(NEW.payload) - length(replace(replace(NEW.payload, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT NEW.payload, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot emit the event: its payload is nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN NEW.payload GLOB '*\u[dD][89a-fA-F]*' AND (replace(NEW.payload, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(NEW.payload, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(NEW.payload, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(NEW.payload, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(NEW.payload, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.payload, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.payload, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.payload, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(NEW.payload, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(NEW.payload, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot emit the event: its payload could not be read again: a text has half of a surrogate pair')
        WHEN (NEW.payload GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR NEW.payload GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(NEW.payload) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot emit the event: its payload could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text') END;
    SELECT RAISE(ABORT, 'cannot emit the event: it was emitted before, with another payload; events stay: use a name that is new')
    FROM windlass_events AS first WHERE first.name = NEW.name AND first.payload <> coalesce(NEW.payload, 'null')
    AND (EXISTS (SELECT fullkey, type, atom FROM json_tree(first.payload)
            EXCEPT SELECT fullkey, type, atom FROM json_tree(coalesce(NEW.payload, 'null')))
        OR EXISTS (SELECT fullkey, type, atom FROM json_tree(coalesce(NEW.payload, 'null'))
            EXCEPT SELECT fullkey, type, atom FROM json_tree(first.payload)));
    INSERT INTO windlass_events (name, payload, created_at) SELECT NEW.name, coalesce(NEW.payload, 'null'), strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE NOT EXISTS (SELECT 1 FROM windlass_events AS e WHERE e.name = NEW.name);
    -- Also for an event that was there: another program may have deleted the request.
    INSERT INTO windlass_wanted_keys (kind, name) SELECT 'event', NEW.name
    WHERE NOT EXISTS (SELECT 1 FROM windlass_wanted_keys AS w WHERE w.kind = 'event' AND w.name = NEW.name);
END;

-- Opens a batch, to which the same transaction adds jobs by their batch_id: the largest id in solid_queue_batches. Without jobs,
-- it is over at the commit.
CREATE VIEW IF NOT EXISTS windlass_open_batch AS SELECT NULL AS name, NULL AS metadata WHERE false;

CREATE TRIGGER IF NOT EXISTS windlass_open_batch_insert INSTEAD OF INSERT ON windlass_open_batch
BEGIN
    SELECT CASE
        WHEN NEW.name IS NULL
        THEN RAISE(ABORT, 'cannot open the batch: its name is missing')
        WHEN typeof(NEW.name) NOT IN ('null', 'text') OR length(CAST(NEW.name AS blob)) NOT BETWEEN 1 AND 255 OR NEW.name GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(NEW.name, char(0)) > 0
        THEN RAISE(ABORT, 'cannot open the batch: its name must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`')
        WHEN typeof(NEW.metadata) NOT IN ('null', 'text') OR length(CAST(NEW.metadata AS blob)) > 65536
        THEN RAISE(ABORT, 'cannot open the batch: its metadata must be JSON text of at most 65536 bytes')
        WHEN NEW.metadata IS NOT NULL AND NOT json_valid(NEW.metadata)
        THEN RAISE(ABORT, 'cannot open the batch: its metadata is not JSON')
        WHEN instr(NEW.metadata, char(0)) > 0 OR instr(replace(NEW.metadata, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot open the batch: its metadata contains a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(NEW.metadata) - length(replace(replace(NEW.metadata, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT NEW.metadata, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot open the batch: its metadata is nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN NEW.metadata GLOB '*\u[dD][89a-fA-F]*' AND (replace(NEW.metadata, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(NEW.metadata, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(NEW.metadata, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(NEW.metadata, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(NEW.metadata, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.metadata, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.metadata, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.metadata, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(NEW.metadata, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(NEW.metadata, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot open the batch: its metadata could not be read again: a text has half of a surrogate pair')
        WHEN (NEW.metadata GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR NEW.metadata GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(NEW.metadata) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot open the batch: its metadata could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text') END;
    INSERT INTO solid_queue_batches (active_job_batch_id, description, metadata, enqueued_at, created_at, updated_at)
    VALUES ('windlass-' || lower(hex(randomblob(16))), NEW.name, NEW.metadata, strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now'));
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('batch', last_insert_rowid());
END;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261128000002', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
