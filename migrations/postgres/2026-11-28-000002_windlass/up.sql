-- Windlass's columns and indexes in Solid Queue's tables, its own tables, triggers, and enqueues by SQL.
-- Each statement may be repeated: `windlass migrate` and Diesel's tools may both have run a part.
--
-- A running Rails app is not disturbed: columns in Solid Queue's tables are nullable or have a default, and stay NULL
-- for jobs that use none of this. No table refers to the jobs by a foreign key: its check would be paid by every job
-- that is deleted, and ids are never used twice, so that a row which outlives its job misleads nobody until a
-- supervisor sweeps it away.

------------------------------------------------------------------------------------------------------------------------
-- Columns and indexes in Solid Queue's tables
------------------------------------------------------------------------------------------------------------------------

-- Jobs: the facts that a supervisor needs to recover one without its code.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS attempts integer NOT NULL DEFAULT 0;
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS max_attempts integer;
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS crash_count integer NOT NULL DEFAULT 0;
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS max_crashes integer;
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS at_most_once boolean NOT NULL DEFAULT false;
-- The claim that ended last by its owner's own word: tells a worker whose COMMIT got no answer that the ending was its
-- own.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS last_claim_id bigint;
-- Makes a repeated enqueue harmless.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS idempotency_key varchar;
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_jobs_on_idempotency_key ON solid_queue_jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
-- All that the job's type or its enqueue says beyond these columns, as JSON.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS policy text;
-- The name by which the application knows the job.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS unique_id varchar;
CREATE INDEX IF NOT EXISTS index_windlass_jobs_on_unique_id ON solid_queue_jobs (unique_id) WHERE unique_id IS NOT NULL;
-- The number of jobs of its key that may be ready or claimed at once. NULL beside a key: a job of Rails, whose limit
-- is Solid Queue's own matter. The rows show who holds a slot: a ready or claimed execution that names the key. There
-- is no count to keep, so none can leak; jobs without a key have no part in any of it.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS concurrency_slots integer;
-- 'discard', or NULL to wait.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS concurrency_conflict varchar;
-- Finds the youngest job of a key, whose limit is the one that counts.
CREATE INDEX IF NOT EXISTS index_windlass_jobs_on_concurrency_key ON solid_queue_jobs (concurrency_key, id) WHERE concurrency_slots IS NOT NULL;
-- The trace context of the enqueue, as the header `traceparent` of W3C Trace Context. Any program may write it; a text
-- of another form counts as none.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS traceparent varchar;
-- The customer, or whatever else fair shares are for. Nothing reads it yet.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS tenant varchar;
-- The rates of its starts, as JSON: of each the key, the number, the period in microseconds, the burst and the cost.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS rates text;
-- The line in which a job with rates waits: the keys of all gates that it passes at once. NULL: it has no rate.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS gate varchar;
-- True: jobs wait for this one. It is set in the transaction that enqueues them, which locks the row.
ALTER TABLE solid_queue_jobs ADD COLUMN IF NOT EXISTS has_dependents boolean;
-- A job that has finished and is kept is updated once. With room on its page the new version needs no entry in the
-- index (2.5 us and 400 bytes of log less a job), and the old one's place is free again before any vacuum comes.
ALTER TABLE solid_queue_jobs SET (fillfactor = 50);

-- Ready executions: lets a worker claim only what it can perform. NULL in rows made by Rails.
ALTER TABLE solid_queue_ready_executions ADD COLUMN IF NOT EXISTS class_name varchar;
-- The job is at most once, or was running when a process died: it is noted as begun only when a thread is free for it,
-- or, if it is only at most once and short, a moment before.
-- NULL: it is neither, and may be taken to have begun a few milliseconds early, with others as short.
ALTER TABLE solid_queue_ready_executions ADD COLUMN IF NOT EXISTS cautious boolean;
ALTER TABLE solid_queue_ready_executions ADD COLUMN IF NOT EXISTS concurrency_key varchar;
CREATE INDEX IF NOT EXISTS index_windlass_ready_on_concurrency_key ON solid_queue_ready_executions (concurrency_key) WHERE concurrency_key IS NOT NULL;

-- Claimed executions. NULL: claimed, but no thread has begun it.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN IF NOT EXISTS started_at timestamp(6);
-- Somebody asked for the running job to be cancelled. It stays with the claim until the claim ends, however it ends.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN IF NOT EXISTS cancel_requested_at timestamp(6);
-- The end of the job when its process ends, decided by that process when the job overran its time: JSON.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN IF NOT EXISTS verdict text;
-- The thread, and the progress that the job has told: JSON.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN IF NOT EXISTS note text;
ALTER TABLE solid_queue_claimed_executions ADD COLUMN IF NOT EXISTS concurrency_key varchar;
CREATE INDEX IF NOT EXISTS index_windlass_claimed_on_concurrency_key ON solid_queue_claimed_executions (concurrency_key) WHERE concurrency_key IS NOT NULL;
-- The semaphore of Solid Queue of which the job holds a slot.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN IF NOT EXISTS semaphore_id bigint;
-- True: the claim was made ahead of the worker's threads, so that it is not known whether its job had started when its
-- process died.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN IF NOT EXISTS prefetched boolean;
-- Since when the job had been ready, by the database's clock.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN IF NOT EXISTS ready_at timestamp(6);

-- Scheduled executions: the concurrency key of a job that waits for its next run and keeps its slot: one of an ordered
-- key, behind which nothing of that key runs.
ALTER TABLE solid_queue_scheduled_executions ADD COLUMN IF NOT EXISTS concurrency_key varchar;
CREATE INDEX IF NOT EXISTS index_windlass_scheduled_on_concurrency_key ON solid_queue_scheduled_executions (concurrency_key)
    WHERE concurrency_key IS NOT NULL;

-- Blocked executions: the line of a job with rates. Its concurrency key is four blanks then.
ALTER TABLE solid_queue_blocked_executions ADD COLUMN IF NOT EXISTS gate varchar;
CREATE INDEX IF NOT EXISTS index_windlass_blocked_on_gate ON solid_queue_blocked_executions (gate, priority, job_id) WHERE gate IS NOT NULL;

-- Blocked executions: those of Solid Queue, whose wait expires.
CREATE INDEX IF NOT EXISTS index_windlass_blocked_by_ruby ON solid_queue_blocked_executions (concurrency_key)
    WHERE expires_at < timestamp '9999-12-31 00:00:00.000000';

-- Failed executions: the properties that failures have in common, class, kind and the shape of the message, as a hash.
-- NULL for failures that another program has stored, until a supervisor fills it in.
ALTER TABLE solid_queue_failed_executions ADD COLUMN IF NOT EXISTS fingerprint varchar;
CREATE INDEX IF NOT EXISTS index_windlass_failed_on_fingerprint ON solid_queue_failed_executions (fingerprint, id);

-- Processes. NULL in the rows of Rails processes, which Windlass leaves alone.
ALTER TABLE solid_queue_processes ADD COLUMN IF NOT EXISTS heartbeat_seq bigint;
ALTER TABLE solid_queue_processes ADD COLUMN IF NOT EXISTS draining boolean NOT NULL DEFAULT false;
-- Wants to be notified of new work.
ALTER TABLE solid_queue_processes ADD COLUMN IF NOT EXISTS listening boolean NOT NULL DEFAULT false;
-- The channel on which a worker is notified of new work. Up to its second `_`, it is the same for workers that take the
-- same jobs. NULL: that of all.
ALTER TABLE solid_queue_processes ADD COLUMN IF NOT EXISTS channel varchar;
-- When an idle worker last asked this one to release what it has not started.
ALTER TABLE solid_queue_processes ADD COLUMN IF NOT EXISTS release_requested_at timestamp(6);

-- Pauses: who paused a queue, and why. NULL where Rails did.
ALTER TABLE solid_queue_pauses ADD COLUMN IF NOT EXISTS paused_by varchar;
ALTER TABLE solid_queue_pauses ADD COLUMN IF NOT EXISTS pause_reason text;

-- Recurring tasks. A row is Windlass' when it has a next_run_at; those of a Rails app have none, and each leaves the
-- other's alone. Ours are not static: Solid Queue deletes static tasks that its own configuration does not have.
--
-- The first tick that nobody has dealt with. It moves in the transaction that enqueues, and outlives every job, so that
-- no tick is fired twice.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS next_run_at timestamp(6);
-- The last tick that was fired.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS last_run_at timestamp(6);
-- A tick that waits for the job before it to end.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS queued_run_at timestamp(6);
-- The jobs that were not known to have ended when the last tick was fired: a JSON array, kept where jobs must not
-- overlap.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS open_jobs text;
-- The schedule as it was given. Ruby reads `schedule`, so that one has the same times in the words of fugit.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS schedule_text varchar;
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS time_zone varchar;
-- Missed ticks, overlapping jobs, and the policy of the jobs: JSON.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS options text;
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS paused_at timestamp(6);
-- When a scheduler that has the task in its code or configuration last said so; tasks scheduled at run time have none.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS declared_at timestamp(6);
-- Of the program that declared it: an older one does not overwrite it.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS revision bigint;
-- Grows with every change: who has seen an older one changes nothing.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS row_version bigint NOT NULL DEFAULT 0;
-- The deployments whose start a task with the schedule `@start` has had, oldest first: a JSON array of revision texts.
-- A program of an old deployment that starts again finds its own among them.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN IF NOT EXISTS starts text;
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
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
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
    started_at timestamp(6),
    ended_at timestamp(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS index_windlass_attempts_on_job_id ON windlass_attempts (job_id, id);
-- Finds the jobs that were cancelled or discarded; other attempts pay nothing.
CREATE INDEX IF NOT EXISTS index_windlass_attempts_on_outcome ON windlass_attempts (outcome, id) WHERE outcome IN ('cancelled', 'discarded');

-- The values that jobs returned, for as long as somebody may ask. `batch_id`: those of a batch are read in their order
-- by what follows it.
CREATE TABLE IF NOT EXISTS windlass_results (
    job_id bigint PRIMARY KEY,
    unique_id varchar,
    class_name varchar NOT NULL,
    outcome varchar NOT NULL,
    result text,
    error text,
    attempt integer NOT NULL,
    progress text,
    finished_at timestamp(6) NOT NULL,
    expires_at timestamp(6) NOT NULL,
    batch_id bigint
);
CREATE INDEX IF NOT EXISTS index_windlass_results_on_unique_id ON windlass_results (unique_id, job_id) WHERE unique_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS index_windlass_results_on_expires_at ON windlass_results (expires_at);
CREATE INDEX IF NOT EXISTS windlass_results_on_batch ON windlass_results (batch_id, job_id) WHERE batch_id IS NOT NULL;

-- Those that wait for a result, so that nobody is notified for nothing.
CREATE TABLE IF NOT EXISTS windlass_waiters (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    job_id bigint NOT NULL,
    expires_at timestamp(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS index_windlass_waiters_on_job_id ON windlass_waiters (job_id);

-- The job that holds a unique id: the constraint that two of them cannot. How long the id is held follows from where
-- its job stands, so that neither a claim nor an end has to touch this table, and nobody who ends jobs ever waits for
-- somebody who enqueues one. `after_job_id` is the job that has to end before the one that holds the id may begin.
CREATE TABLE IF NOT EXISTS windlass_unique_jobs (
    unique_id varchar PRIMARY KEY,
    job_id bigint NOT NULL,
    scope varchar NOT NULL,
    after_job_id bigint
);
CREATE INDEX IF NOT EXISTS index_windlass_unique_jobs_on_job_id ON windlass_unique_jobs (job_id);
CREATE INDEX IF NOT EXISTS index_windlass_unique_jobs_on_after_job_id ON windlass_unique_jobs (after_job_id) WHERE after_job_id IS NOT NULL;

-- The moments by which jobs must have started. A row is deleted when its job starts. `released_claim_id` is the last
-- claim of the job, if no thread has started it.
CREATE TABLE IF NOT EXISTS windlass_expiries (
    job_id bigint PRIMARY KEY,
    expires_at timestamp(6) NOT NULL,
    released_claim_id bigint
);
CREATE INDEX IF NOT EXISTS index_windlass_expiries_on_expires_at ON windlass_expiries (expires_at);

-- The lines that jobs have logged about themselves, one row for each run. `lines` is JSON; `total` also counts the
-- lines that were dropped.
CREATE TABLE IF NOT EXISTS windlass_job_logs (
    job_id bigint NOT NULL,
    claim_id bigint NOT NULL,
    attempt integer NOT NULL,
    started_at timestamp(6) NOT NULL,
    lines text NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (job_id, claim_id)
);

-- The public tokens of jobs, as hexadecimal SHA-256 of their text: who has one sees what is public of the job, and its
-- result where the class allows that.
CREATE TABLE IF NOT EXISTS windlass_public_tokens (
    digest varchar(64) PRIMARY KEY,
    job_id bigint NOT NULL,
    shows_result boolean NOT NULL,
    created_at timestamp(6) NOT NULL
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
    created_at timestamp(6) NOT NULL,
    PRIMARY KEY (job_id, name)
);

-- Events that were emitted, by their names.
CREATE TABLE IF NOT EXISTS windlass_events (
    name varchar PRIMARY KEY,
    payload text NOT NULL,
    created_at timestamp(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS windlass_events_on_created_at ON windlass_events (created_at);

-- Jobs that wait for an event: at which step, since which claim, and until when.
CREATE TABLE IF NOT EXISTS windlass_waits (
    job_id bigint PRIMARY KEY,
    claim_id bigint NOT NULL,
    step varchar NOT NULL,
    event_name varchar NOT NULL,
    timeout_at timestamp(6) NOT NULL,
    created_at timestamp(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS windlass_waits_on_event ON windlass_waits (event_name);
CREATE INDEX IF NOT EXISTS windlass_waits_on_timeout_at ON windlass_waits (timeout_at);

-- Jobs that wait for a job or a batch to end.
CREATE TABLE IF NOT EXISTS windlass_edges (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    child_job_id bigint NOT NULL,
    parent_job_id bigint,
    parent_batch_id bigint,
    name varchar,
    runs_on varchar NOT NULL,
    otherwise varchar NOT NULL,
    outcome varchar,
    created_at timestamp(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS windlass_edges_on_child_and_job ON windlass_edges (child_job_id, parent_job_id);
-- By the outcome, so that the edges of a parent that are left are found without those that have theirs.
CREATE INDEX IF NOT EXISTS windlass_edges_on_parent_job ON windlass_edges (parent_job_id, outcome) WHERE parent_job_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS windlass_edges_on_parent_batch ON windlass_edges (parent_batch_id, outcome) WHERE parent_batch_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS windlass_edges_on_failed_job ON windlass_edges (parent_job_id) WHERE outcome = 'failed' AND otherwise = 'wait' AND runs_on = 'success';
CREATE INDEX IF NOT EXISTS windlass_edges_on_failed_batch ON windlass_edges (parent_batch_id) WHERE outcome = 'failed' AND otherwise = 'wait' AND runs_on = 'success';

-- Jobs of batches that ended without success. A failure is final if no retry brings the job back into its batch.
CREATE TABLE IF NOT EXISTS windlass_batch_failures (
    job_id bigint PRIMARY KEY,
    batch_id bigint NOT NULL,
    is_final boolean NOT NULL DEFAULT false,
    created_at timestamp(6) NOT NULL
);
CREATE INDEX IF NOT EXISTS windlass_batch_failures_on_batch ON windlass_batch_failures (batch_id, job_id);
CREATE INDEX IF NOT EXISTS windlass_batch_failures_final ON windlass_batch_failures (batch_id) WHERE is_final;

-- Requests to the next promotion: keys of which a transaction has blocked a job or freed a slot. A row without a key
-- has a kind, and names an id or a name, so that no key of a user can be one. Only ever inserted and deleted, so that
-- no transaction that enqueues makes another wait. `failures` is how often the database has refused its promotion,
-- `waiting_since` since when it is known to wait.
CREATE TABLE IF NOT EXISTS windlass_wanted_keys (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    key varchar,
    kind varchar,
    target_id bigint,
    amount bigint,
    name varchar,
    failures integer,
    waiting_since timestamp(6)
);
CREATE INDEX IF NOT EXISTS index_windlass_wanted_keys_on_key ON windlass_wanted_keys (key, target_id, name);

------------------------------------------------------------------------------------------------------------------------
-- Classes, limits, quotas and settings
------------------------------------------------------------------------------------------------------------------------

-- The classes that workers perform; each worker writes its own when it starts. `redact` has the fields of their
-- arguments that are secret, as a JSON array of names. `internal`: only the program's own code may enqueue jobs of the
-- class. `quota` is the quota of enqueues by the name of a class, as JSON. `rates` are those of its policy, as a job has them.
CREATE TABLE IF NOT EXISTS windlass_classes (
    class_name varchar PRIMARY KEY,
    queue_name varchar NOT NULL,
    redact text NOT NULL,
    seen_at timestamp(6) NOT NULL,
    internal boolean NOT NULL DEFAULT false,
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
    class_name varchar PRIMARY KEY,
    paused_by varchar,
    pause_reason text,
    created_at timestamp(6) NOT NULL
);

-- Limits of concurrency keys that were set at run time. `limit_key` is a key, or a group with `/*` for all its keys;
-- `slots` replaces the limit of their jobs.
CREATE TABLE IF NOT EXISTS windlass_limits (
    limit_key varchar PRIMARY KEY,
    slots integer,
    rate_number bigint,
    rate_period bigint,
    rate_burst bigint,
    set_by varchar,
    reason text,
    created_at timestamp(6) NOT NULL
);

-- The tokens of each key of a rate: a bucket of at most `burst`, into which `number` come in `period` microseconds. `level`
-- is what it has at `counted_at`, in parts, of which `period` are a token. Times are microseconds since 1970 by the
-- database's clock, less the steps that it has made (the setting `clock_steps`). `closed_until`: nothing starts before.
-- `due_at`: the time of the next look; if jobs wait (`has_waiting`), nothing looks before.
-- `promised`: the jobs that were made ready and have not started, as far as was seen, as JSON: [[since, cost, [id, ...]], ...].
CREATE TABLE IF NOT EXISTS windlass_rates (
    rate_key varchar PRIMARY KEY,
    number bigint NOT NULL,
    period bigint NOT NULL,
    burst bigint NOT NULL,
    level bigint NOT NULL,
    counted_at bigint NOT NULL,
    closed_until bigint,
    due_at bigint,
    has_waiting boolean NOT NULL DEFAULT false,
    promised text
);
CREATE INDEX IF NOT EXISTS index_windlass_rates_on_due_at ON windlass_rates (due_at) WHERE due_at IS NOT NULL;

-- Lines with several gates: the one that was closed when the line was last looked at, and the first job of the line then.
CREATE TABLE IF NOT EXISTS windlass_lines (
    line varchar PRIMARY KEY,
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
    queue_name varchar PRIMARY KEY,
    by_time boolean NOT NULL DEFAULT false,
    starting_from bigint,
    is_ending boolean NOT NULL DEFAULT false,
    places bigint NOT NULL DEFAULT 1,
    promised text,
    recent text,
    mean bigint NOT NULL DEFAULT 0,
    looked_at bigint NOT NULL DEFAULT 0,
    moved_at bigint NOT NULL DEFAULT 0,
    due_at bigint,
    created_at timestamp(6) NOT NULL
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
    created_at timestamp(6) NOT NULL,
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
    starts_at timestamp(6) NOT NULL,
    jobs bigint NOT NULL,
    limits text NOT NULL,
    PRIMARY KEY (quota, per, slot)
);
CREATE INDEX IF NOT EXISTS index_windlass_quota_slots_on_starts_at ON windlass_quota_slots (starts_at);
-- A slot changes with each enqueue: with room on its page the new version needs no entry in an index.
ALTER TABLE windlass_quota_slots SET (fillfactor = 50);

-- The jobs of quotas that limit how many wait. Rows of jobs that do not wait are deleted when the quota is used up, and
-- now and then.
CREATE TABLE IF NOT EXISTS windlass_quota_jobs (
    job_id bigint PRIMARY KEY,
    quota varchar NOT NULL,
    slot bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS index_windlass_quota_jobs_on_quota ON windlass_quota_jobs (quota, job_id);

-- Settings that programs in all languages share, as strict_classes: on or off.
CREATE TABLE IF NOT EXISTS windlass_settings (
    name varchar PRIMARY KEY,
    value varchar NOT NULL
);

------------------------------------------------------------------------------------------------------------------------
-- History, audit and the web pages
------------------------------------------------------------------------------------------------------------------------

-- The ends of jobs, as each process has added them up since its heartbeat before, until a supervisor adds them to
-- `windlass_stats`. A row without data was added, and stays for a while: a process may repeat an insert that got no
-- answer.
CREATE TABLE IF NOT EXISTS windlass_stats_deltas (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    source varchar,
    seq bigint,
    created_at timestamp(6) NOT NULL,
    data bytea
);
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_stats_deltas_on_source ON windlass_stats_deltas (source, seq);
CREATE INDEX IF NOT EXISTS index_windlass_stats_deltas_for_fold ON windlass_stats_deltas (id) WHERE data IS NOT NULL;

-- The series: a queue and a class, a queue with an empty class for several classes, and both empty for everything.
-- `folded_at` of the last one is when something was last added up. An empty queue with a class is a gate for which jobs
-- waited, such as `rate/api`: its buckets have for how long the first job had waited, at each sample that found some.
CREATE TABLE IF NOT EXISTS windlass_stats_series (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    queue_name varchar NOT NULL,
    class_name varchar NOT NULL,
    folded_at timestamp(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_stats_series_on_names ON windlass_stats_series (queue_name, class_name);

-- The buckets of a series, packed: 30 minutes, 24 times ten minutes, or 12 hours in a row. `resolution` is the length
-- of a bucket in seconds, `starts_at` the start of the first one in seconds since 1970. Both are 0 for the total of the
-- series, which only grows.
CREATE TABLE IF NOT EXISTS windlass_stats (
    series_id bigint NOT NULL,
    resolution integer NOT NULL,
    starts_at bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (series_id, resolution, starts_at)
);

-- The changes that people and programs made, and who made them. `jobs` is how many jobs changed with this row, `total`
-- how many with it and the rows of the same action before it. The first row of an action has its filter, the others
-- name it in `part_of`.
CREATE TABLE IF NOT EXISTS windlass_audit (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    created_at timestamp(6) NOT NULL,
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

-- Rows are only added. Retention deletes those that are at least 30 days old.
CREATE OR REPLACE FUNCTION windlass_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.created_at <= statement_timestamp() AT TIME ZONE 'UTC' - interval '30 days' THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'TRUNCATE' AND NOT EXISTS (SELECT 1 FROM windlass_audit
        WHERE created_at > statement_timestamp() AT TIME ZONE 'UTC' - interval '30 days') THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'windlass_audit is append-only: its rows are not changed, and not deleted before they are 30 days old';
END
$$;
CREATE OR REPLACE TRIGGER windlass_audit_keep BEFORE UPDATE OR DELETE ON windlass_audit
    FOR EACH ROW EXECUTE FUNCTION windlass_audit_is_append_only();
CREATE OR REPLACE TRIGGER windlass_audit_keep_all BEFORE TRUNCATE ON windlass_audit
    FOR EACH STATEMENT EXECUTE FUNCTION windlass_audit_is_append_only();

-- Changes of many jobs, which any process carries on in batches. `bounds` has the executions up to which jobs are
-- selected, `place` how far they were, and `counts` what became of them, all as JSON. `request_id` is the request that
-- started it, by an id that is made with its preview: a request that is repeated does not start another one. NULL for
-- operations that were started without a preview on a page.
CREATE TABLE IF NOT EXISTS windlass_operations (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
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
    created_at timestamp(6) NOT NULL,
    started_at timestamp(6),
    moved_at timestamp(6) NOT NULL,
    ended_at timestamp(6),
    request_id varchar
);
CREATE INDEX IF NOT EXISTS index_windlass_operations_on_open ON windlass_operations (id) WHERE ended_at IS NULL;
CREATE INDEX IF NOT EXISTS index_windlass_operations_on_ended_at ON windlass_operations (ended_at) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_operations_on_request_id ON windlass_operations (request_id) WHERE request_id IS NOT NULL;

-- The tokens of `windlass web`. `digest` is the SHA-256 of a token, in hexadecimal, and `lookup` its first 16 digits;
-- the token itself is stored nowhere. `role`: viewer, operator or enqueuer. `limits` is JSON: what an enqueuer may
-- enqueue.
CREATE TABLE IF NOT EXISTS windlass_web_tokens (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    name varchar NOT NULL,
    role varchar NOT NULL,
    lookup varchar NOT NULL,
    digest varchar NOT NULL,
    limits text,
    created_by varchar,
    created_at timestamp(6) NOT NULL,
    last_used_at timestamp(6),
    expires_at timestamp(6),
    revoked_at timestamp(6)
);
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_web_tokens_on_lookup ON windlass_web_tokens (lookup);

-- The sessions of those who are signed in, each with its token. `digest` and `lookup` are those of the secret in the
-- session's cookie.
CREATE TABLE IF NOT EXISTS windlass_web_sessions (
    id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    token_id bigint NOT NULL,
    lookup varchar NOT NULL,
    digest varchar NOT NULL,
    origin varchar,
    created_at timestamp(6) NOT NULL,
    seen_at timestamp(6) NOT NULL,
    expires_at timestamp(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_windlass_web_sessions_on_lookup ON windlass_web_sessions (lookup);
CREATE INDEX IF NOT EXISTS index_windlass_web_sessions_on_token_id ON windlass_web_sessions (token_id);

------------------------------------------------------------------------------------------------------------------------
-- Triggers, which heed the changes of every program
------------------------------------------------------------------------------------------------------------------------

-- A deleted job takes its executions along, as by Solid Queue's foreign keys, at a fraction of their price: they look
-- into each of four tables for each job that is deleted (11 us a job), and one trigger looks once for all jobs of a
-- statement (1 us in batches of 100). Jobs that end together mostly have ids that lie together, and mostly nothing to
-- take along: one look a table tells.
CREATE OR REPLACE FUNCTION windlass_take_along() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    low bigint;
    high bigint;
    wide boolean;
BEGIN
    SELECT min(id), max(id), max(id) - min(id) > 20 * count(*) INTO low, high, wide FROM gone;
    IF wide OR EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id BETWEEN low AND high) THEN
        DELETE FROM solid_queue_scheduled_executions WHERE job_id IN (SELECT id FROM gone);
    END IF;
    IF wide OR EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id BETWEEN low AND high) THEN
        DELETE FROM solid_queue_blocked_executions WHERE job_id IN (SELECT id FROM gone);
    END IF;
    IF wide OR EXISTS (SELECT 1 FROM solid_queue_failed_executions WHERE job_id BETWEEN low AND high) THEN
        DELETE FROM solid_queue_failed_executions WHERE job_id IN (SELECT id FROM gone);
    END IF;
    IF wide OR EXISTS (SELECT 1 FROM solid_queue_recurring_executions WHERE job_id BETWEEN low AND high) THEN
        DELETE FROM solid_queue_recurring_executions WHERE job_id IN (SELECT id FROM gone);
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER windlass_take_along AFTER DELETE ON solid_queue_jobs
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION windlass_take_along();

-- A deleted job of a batch takes its execution in the batch along.
CREATE OR REPLACE FUNCTION windlass_leave_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM solid_queue_batch_executions WHERE job_id = OLD.id;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER windlass_leave_batch AFTER DELETE ON solid_queue_jobs
    FOR EACH ROW WHEN (OLD.batch_id IS NOT NULL) EXECUTE FUNCTION windlass_leave_batch();

-- Whichever program ends a job of a batch, the next promotion looks whether the batch is over.
CREATE OR REPLACE FUNCTION windlass_batch_left() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT DISTINCT 'batch', batch_id FROM gone;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER windlass_batch_left AFTER DELETE ON solid_queue_batch_executions
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION windlass_batch_left();

-- Whichever program ends a job for which others wait, the next promotion looks what waited for it.
CREATE OR REPLACE FUNCTION windlass_parent_finished() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('ended', NEW.id);
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER windlass_parent_finished AFTER UPDATE OF finished_at ON solid_queue_jobs
    FOR EACH ROW WHEN (NEW.has_dependents AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL)
    EXECUTE FUNCTION windlass_parent_finished();

CREATE OR REPLACE FUNCTION windlass_parent_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'ended', id FROM gone WHERE has_dependents AND finished_at IS NULL;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER windlass_parent_deleted AFTER DELETE ON solid_queue_jobs
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION windlass_parent_deleted();

-- The lock lets a transaction that is about to set has_dependents end first. A condition within it would pass the row
-- unlocked.
CREATE OR REPLACE FUNCTION windlass_parent_failed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    failed bigint[] := ARRAY(SELECT job_id FROM new_rows);
BEGIN
    WITH held AS MATERIALIZED (
        SELECT id, has_dependents FROM solid_queue_jobs WHERE id = ANY (failed) ORDER BY id FOR NO KEY UPDATE
    )
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'ended', id FROM held WHERE has_dependents;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER windlass_parent_failed AFTER INSERT ON solid_queue_failed_executions
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION windlass_parent_failed();

-- A failed job of a batch that is deleted is not retried any more: the next promotion looks what waited for that.
CREATE OR REPLACE FUNCTION windlass_failure_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    members bigint[] := ARRAY(SELECT id FROM gone WHERE batch_id IS NOT NULL AND finished_at IS NULL);
BEGIN
    IF members <> '{}' THEN
        WITH lost AS (
            UPDATE windlass_batch_failures SET is_final = true WHERE job_id = ANY (members) RETURNING batch_id
        ), batches AS (SELECT DISTINCT batch_id FROM lost)
        INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'batch', batch_id FROM batches
        WHERE EXISTS (SELECT 1 FROM windlass_edges w WHERE w.parent_batch_id = batch_id AND w.otherwise = 'wait');
    END IF;
    RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER windlass_failure_deleted AFTER DELETE ON solid_queue_jobs
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION windlass_failure_deleted();

------------------------------------------------------------------------------------------------------------------------
-- Enqueues by SQL
------------------------------------------------------------------------------------------------------------------------

-- For programs in any language, in the caller's own transaction: a row inserted into the view
-- windlass_enqueue is a job, and the function windlass_enqueue returns the job's id. Both follow the rules of Rust's
-- enqueue. What a name with _v2 means will not change.
--
-- Both work with the rights of their owner: a role that may use them enqueues jobs, and needs no right on a table. No
-- other role than the owner may, until it is granted:
--   GRANT INSERT, SELECT ON windlass_enqueue TO app;
--   GRANT EXECUTE ON FUNCTION windlass_enqueue, windlass_enqueue_many TO app;
--
-- From here on, this file is made of tests/internal/enqueue_by_sql/postgres.sql and the constants of Rust: a test
-- compares them.

CREATE OR REPLACE VIEW windlass_enqueue_v2 AS SELECT
    CAST(NULL AS text) AS class,
    CAST(NULL AS text) AS arguments,
    CAST(NULL AS text) AS queue,
    CAST(NULL AS integer) AS priority,
    CAST(NULL AS timestamptz) AS run_at,
    CAST(NULL AS double precision) AS delay_seconds,
    CAST(NULL AS text) AS unique_id,
    CAST(NULL AS text) AS unique_scope,
    CAST(NULL AS text) AS on_conflict,
    CAST(NULL AS text) AS idempotency_key,
    CAST(NULL AS text) AS concurrency_key,
    CAST(NULL AS text) AS concurrency_group,
    CAST(NULL AS bigint) AS concurrency_limit,
    CAST(NULL AS text) AS concurrency_on_conflict,
    CAST(NULL AS bigint) AS max_attempts,
    CAST(NULL AS bigint) AS max_crashes,
    CAST(NULL AS boolean) AS at_most_once,
    CAST(NULL AS text) AS traceparent,
    CAST(NULL AS text) AS tags,
    CAST(NULL AS text) AS meta,
    CAST(NULL AS bigint) AS version,
    CAST(NULL AS double precision) AS timeout_seconds,
    CAST(NULL AS double precision) AS backoff_seconds,
    CAST(NULL AS double precision) AS backoff_cap_seconds,
    CAST(NULL AS double precision) AS expires_in_seconds,
    CAST(NULL AS timestamptz) AS not_after,
    CAST(NULL AS double precision) AS retry_for_seconds,
    CAST(NULL AS double precision) AS keep_result_seconds,
    CAST(NULL AS text) AS tenant,
    CAST(NULL AS bigint) AS batch_id,
    CAST(NULL AS bigint) AS after_batch,
    CAST(NULL AS text) AS runs_on,
    CAST(NULL AS text) AS rates,
    CAST(NULL AS bigint) AS id,
    CAST(NULL AS text) AS outcome
WHERE false;

-- Whether arrays and objects of JSON text are nested too deeply to be read again.
CREATE OR REPLACE FUNCTION windlass_is_too_deep(p_json text, p_deepest integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_rest text;
BEGIN
    IF length(p_json) - length(translate(p_json, '[{', '')) <= p_deepest THEN
        RETURN false;
    END IF;
    -- A bracket in a text counts for nothing.
    v_rest := regexp_replace(p_json, E'"([^"\\\\]|\\\\.)*"', '', 'g');
    v_rest := translate(regexp_replace(v_rest, '[^][{}]', '', 'g'), '{}', '[]');
    FOR v_depth IN 1 .. p_deepest LOOP
        v_rest := replace(v_rest, '[]', '');
    END LOOP;
    RETURN v_rest <> '';
END;
$$;

-- Whether JSON text has a number beyond a float, or an integer of more than 64 bits.
CREATE OR REPLACE FUNCTION windlass_has_wide_number(p_json text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_number text;
    v_float double precision;
BEGIN
    -- A number in a text is none.
    FOR v_number IN SELECT m[1] FROM regexp_matches(regexp_replace(p_json, E'"([^"\\\\]|\\\\.)*"', '', 'g'),
        '([0-9]+(?:[.][0-9]+)?(?:[eE][+]?[0-9]+)?|-[0-9]+(?![0-9.eE]))', 'g') AS m
    LOOP
        IF v_number ~ '^-?[0-9]{19,}$' AND CAST(v_number AS numeric) NOT BETWEEN -9223372036854775808 AND 18446744073709551615 THEN
            RETURN true;
        ELSIF v_number ~ '[eE][+]?[0-9]{3}' OR length(v_number) > 300 THEN
            v_float := v_number;
        END IF;
    END LOOP;
    RETURN false;
EXCEPTION WHEN numeric_value_out_of_range THEN
    RETURN true;
END;
$$;

-- Refuses a class that only the code of its program may enqueue or, if the setting strict_classes is on, a class that no
-- worker has stored.
CREATE OR REPLACE FUNCTION windlass_refuse_class(class text, is_unknown boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF is_unknown THEN
        RAISE EXCEPTION 'cannot enqueue `%`: no worker has stored this class, and strict_classes is on', class
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Start a worker that performs it, or correct the name.';
    END IF;
    RAISE EXCEPTION 'cannot enqueue `%` by name: its type is internal, so only its program''s own code enqueues it', class
        USING ERRCODE = 'insufficient_privilege';
END;
$$;

-- Wakes sleeping workers, once for each statement of a client: windlass.woken_by is the time of the last one.
CREATE OR REPLACE FUNCTION windlass_wake() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('windlass.woken_by', CAST(statement_timestamp() AS text), true), (SELECT count(pg_notify(w.channel, '')) FROM (SELECT coalesce(channel, 'windlass') AS channel, row_number() OVER (PARTITION BY left(channel, 25) ORDER BY last_heartbeat_at < (statement_timestamp() AT TIME ZONE 'UTC') - interval '30 seconds', random()) AS place FROM solid_queue_processes WHERE listening AND true) AS w WHERE w.place <= 1 + 1);
END;
$$;

-- Where a job is: 0 ready, 1 scheduled, 2 blocked, 3 claimed, 4 ended with a result that is kept, 5 none of these.
CREATE OR REPLACE FUNCTION windlass_place_of(job bigint) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT CASE WHEN EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE job_id = job) THEN 0
        WHEN EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id = job) THEN 1
        WHEN EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = job) THEN 2
        WHEN EXISTS (SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = job) THEN 3
        WHEN EXISTS (SELECT 1 FROM windlass_results WHERE job_id = job AND expires_at > (statement_timestamp() AT TIME ZONE 'UTC')) THEN 4 ELSE 5 END);
END;
$$;

-- Takes places for a new job in the quota of its class, as Rust does: from slots that no other transaction has locked. One
-- that exceeds the quota is refused, also where Rust would discard it.
CREATE OR REPLACE FUNCTION windlass_take_places(p_class text, p_quota text, p_job bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_quota json := p_quota;
    v_name text := v_quota ->> 'name';
    v_now timestamp := (statement_timestamp() AT TIME ZONE 'UTC');
    v_slots bigint;
    v_slot bigint;
    r record;
BEGIN
    FOR r IN
        SELECT l.per, CAST(v_quota -> 'limits' ->> l.field AS bigint) AS jobs, l.seconds, l.counts,
            date_trunc(CASE WHEN l.seconds IS NULL THEN 'day' ELSE l.per END, v_now) AS starts_at,
            coalesce(v_now - l.seconds * interval '1 second', '-infinity') AS since
        FROM (VALUES (0, 'day', 'per_day', CAST(86400 AS bigint), 'enqueues per day'), (1, 'minute', 'per_minute', CAST(60 AS bigint), 'enqueues per minute'), (2, 'second', 'per_second', CAST(1 AS bigint), 'enqueues per second'), (3, 'waiting', 'waiting', CAST(NULL AS bigint), 'waiting jobs')) AS l (place, per, field, seconds, counts)
        WHERE v_quota -> 'limits' ->> l.field IS NOT NULL ORDER BY l.place
    LOOP
        v_slots := greatest(least(r.jobs, 1000), 1);
        FOR v_try IN 1 .. 10 LOOP
            UPDATE windlass_quota_slots s SET jobs = CASE WHEN s.starts_at > r.since THEN s.jobs ELSE 0 END + 1,
                starts_at = CASE WHEN s.starts_at > r.since AND r.seconds IS NOT NULL THEN s.starts_at ELSE r.starts_at END,
                limits = v_quota ->> 'limits'
            WHERE s.quota = v_name AND s.per = r.per AND s.slot = (SELECT f.slot FROM windlass_quota_slots f
                WHERE f.quota = v_name AND f.per = r.per AND f.slot < v_slots
                -- Each session starts at another slot, so that few meet.
                AND f.slot >= CASE WHEN v_try = 1 THEN CAST(pg_backend_pid() AS bigint) * 7919 % v_slots ELSE 0 END
                AND CASE WHEN f.starts_at > r.since THEN f.jobs ELSE 0 END + 1
                    <= r.jobs / v_slots + CASE WHEN f.slot < r.jobs % v_slots THEN 1 ELSE 0 END
                ORDER BY f.slot LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING s.slot INTO v_slot;
            EXIT WHEN FOUND;
            CONTINUE WHEN v_try = 1;
            INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
            SELECT v_name, r.per, n.slot, r.starts_at, 0, v_quota ->> 'limits' FROM generate_series(0, v_slots - 1) AS n (slot)
            WHERE (SELECT count(*) FROM windlass_quota_slots f WHERE f.quota = v_name AND f.per = r.per AND f.slot < v_slots) < v_slots
            ON CONFLICT (quota, per, slot) DO NOTHING;
            CONTINUE WHEN FOUND;
            -- Gives back the places of jobs that do not wait any more.
            WITH gone AS MATERIALIZED (
                SELECT q.job_id, q.slot FROM windlass_quota_jobs q JOIN windlass_quota_slots f ON f.quota = q.quota AND f.per = r.per AND f.slot = q.slot
                WHERE q.quota = v_name AND r.seconds IS NULL
                AND NOT EXISTS (SELECT 1 FROM solid_queue_ready_executions e WHERE e.job_id = q.job_id)
                AND NOT EXISTS (SELECT 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = q.job_id)
                AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions e WHERE e.job_id = q.job_id)
                ORDER BY q.job_id LIMIT greatest(r.jobs / 100, 1) FOR UPDATE OF q, f SKIP LOCKED
            ), forgotten AS (
                DELETE FROM windlass_quota_jobs q WHERE q.job_id IN (SELECT gone.job_id FROM gone)
            )
            UPDATE windlass_quota_slots s SET jobs = s.jobs - n.jobs
            FROM (SELECT gone.slot, count(*) AS jobs FROM gone GROUP BY gone.slot) AS n
            WHERE s.quota = v_name AND s.per = r.per AND s.slot = n.slot;
            EXIT WHEN NOT FOUND;
        END LOOP;
        IF v_slot IS NULL THEN
            RAISE EXCEPTION 'cannot enqueue `%`: the quota `%` allows % %; try again %', p_class, v_name, r.jobs, r.counts,
                CASE WHEN r.seconds IS NULL THEN 'when waiting jobs have started'
                ELSE 'in ' || r.seconds - CAST(extract(epoch FROM v_now) AS bigint) % r.seconds + 1 || ' s' END
                USING ERRCODE = 'configuration_limit_exceeded';
        END IF;
        IF r.seconds IS NULL THEN
            INSERT INTO windlass_quota_jobs (job_id, quota, slot) VALUES (p_job, v_name, v_slot) ON CONFLICT (job_id) DO NOTHING;
        END IF;
    END LOOP;
END;
$$;

-- Returns the tags, the metadata and the version of the arguments as a policy has them, with those of the class: of both, that
-- of the caller counts.
CREATE OR REPLACE FUNCTION windlass_extras(p_class text, p_tags text, p_meta text, p_version bigint, p_of_class text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_tags json;
    v_meta json;
    v_of_class json;
    v_problem text;
    v_extras text;
BEGIN
    BEGIN
        v_tags := p_tags;
        v_meta := p_meta;
        v_of_class := p_of_class;
    EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
        v_problem := 'its tags or its meta are not JSON';
    END;
    v_problem := CASE
        WHEN v_problem IS NOT NULL THEN v_problem
        WHEN json_typeof(v_tags) <> 'array' THEN 'its tags must be a JSON array of at most 32 texts, each of 1 to 100 bytes and without NUL'
        WHEN v_tags IS NOT NULL AND (SELECT count(DISTINCT t.value #>> '{}') > 32 OR bool_or(json_typeof(t.value) <> 'string'
            OR octet_length(t.value #>> '{}') NOT BETWEEN 1 AND 100) FROM json_array_elements(v_tags) AS t) THEN 'its tags must be a JSON array of at most 32 texts, each of 1 to 100 bytes and without NUL'
        WHEN json_typeof(v_meta) <> 'object' THEN 'its meta must be a JSON object of at most 32 keys, each of 1 to 100 bytes and without NUL'
        WHEN v_meta IS NOT NULL AND (SELECT count(DISTINCT k) > 32 OR bool_or(octet_length(k) NOT BETWEEN 1 AND 100)
            FROM json_object_keys(v_meta) AS k) THEN 'its meta must be a JSON object of at most 32 keys, each of 1 to 100 bytes and without NUL' END;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(p_class, 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH tag AS (
        SELECT t.value, 0 AS source, t.place FROM json_array_elements_text(v_tags) WITH ORDINALITY AS t (value, place)
        UNION ALL SELECT t.value, 1, t.place FROM json_array_elements_text(v_of_class -> 'tags') WITH ORDINALITY AS t (value, place)
    ), part AS (
        SELECT m.key, m.value, 0 AS source, m.place FROM json_each(v_meta) WITH ORDINALITY AS m (key, value, place)
        UNION ALL SELECT m.key, m.value, 1, m.place FROM json_each(v_of_class -> 'meta') WITH ORDINALITY AS m (key, value, place)
    )
    SELECT concat_ws(',',
        '"tags":[' || (SELECT string_agg(CAST(to_json(u.value) AS text), ',' ORDER BY u.source, u.place)
            FROM (SELECT DISTINCT ON (t.value COLLATE "C") t.* FROM tag AS t ORDER BY t.value COLLATE "C", t.source, t.place) AS u) || ']',
        '"meta":{' || (SELECT string_agg(to_json(u.key) || ':' || u.value, ',' ORDER BY u.key COLLATE "C")
            FROM (SELECT DISTINCT ON (m.key COLLATE "C") m.* FROM part AS m ORDER BY m.key COLLATE "C", m.source, m.place DESC) AS u) || '}',
        '"version":' || nullif(p_version, 1)) INTO v_extras;
    RETURN nullif('{' || v_extras || '}', '{}');
END;
$$;

-- Returns the rates of a caller as a job has them, or NULL if there are none.
CREATE OR REPLACE FUNCTION windlass_rates_of(p_class text, p_rates text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_rates json;
    v_problem text;
    v_stored text;
BEGIN
    BEGIN
        v_rates := p_rates;
        IF (CASE WHEN json_typeof(v_rates) = 'array' THEN json_array_length(v_rates) > 4 ELSE true END) THEN
            v_problem := 'its rates must be a JSON array of at most 4 objects, each with a number and a period, and maybe with a burst, a key and a cost';
        END IF;
    EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
        v_problem := 'its rates are not JSON';
    END;
    -- A number is looked at as text first: a cast could fail.
    SELECT coalesce(v_problem, min(CASE
        WHEN json_typeof(rate.value) <> 'object' THEN 'its rates must be a JSON array of at most 4 objects, each with a number and a period, and maybe with a burst, a key and a cost'
        WHEN (SELECT count(*) <> count(DISTINCT part) OR bool_or(part NOT IN ('number', 'period', 'burst', 'key', 'cost')) FROM json_object_keys(rate.value) AS part) THEN 'its rates must be a JSON array of at most 4 objects, each with a number and a period, and maybe with a burst, a key and a cost'
        WHEN json_typeof(rate.value -> 'key') NOT IN ('string', 'null') OR octet_length(rate.value ->> 'key') NOT BETWEEN 1 AND 255
            OR (rate.value ->> 'key') COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'the key of its rate must have 1 to 255 bytes and no control character'
        WHEN CASE json_typeof(rate.value -> 'period') WHEN 'string' THEN rate.value ->> 'period' NOT IN ('second', 'minute', 'hour', 'day')
            WHEN 'number' THEN CASE WHEN rate.value ->> 'period' ~ '^[0-9]{1,11}$'
                THEN CAST(rate.value ->> 'period' AS bigint) NOT BETWEEN 1 AND 86400000000 ELSE true END
            ELSE true END THEN 'the period of its rate must be second, minute, hour or day, or an integer of microseconds from 1 to 86400000000'
        WHEN rate.value ->> 'number' IS NULL OR (SELECT bool_or(CASE WHEN json_typeof(part.value) = 'number' AND CAST(part.value AS text) ~ '^[0-9]{1,8}$'
                THEN CAST(CAST(part.value AS text) AS integer) NOT BETWEEN 1 AND 10000000 ELSE json_typeof(part.value) <> 'null' END)
            FROM json_each(rate.value) AS part WHERE part.key IN ('number', 'burst', 'cost')) THEN 'the number, the burst and the cost of its rate must be integers from 1 to 10000000, and so must the burst that its number makes'
        WHEN coalesce(CAST(rate.value ->> 'burst' AS bigint), greatest(1, coalesce(CAST(rate.value ->> 'cost' AS bigint), 1), CAST(rate.value ->> 'number' AS bigint) * 100000 / (CASE rate.value ->> 'period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE CAST(rate.value ->> 'period' AS bigint) END))) > 10000000 THEN 'the number, the burst and the cost of its rate must be integers from 1 to 10000000, and so must the burst that its number makes'
        WHEN CAST(rate.value ->> 'cost' AS bigint) > coalesce(CAST(rate.value ->> 'burst' AS bigint), greatest(1, coalesce(CAST(rate.value ->> 'cost' AS bigint), 1), CAST(rate.value ->> 'number' AS bigint) * 100000 / (CASE rate.value ->> 'period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE CAST(rate.value ->> 'period' AS bigint) END))) THEN 'it costs more starts than the burst of its rate, so it could never start; raise the burst, or split the job' END)) INTO v_problem
    FROM json_array_elements(CASE WHEN v_problem IS NULL THEN v_rates END) AS rate (value);
    IF v_problem IS NULL THEN
        SELECT CASE WHEN count(*) <> count(DISTINCT coalesce(rate.value ->> 'key', p_class) COLLATE "C") THEN 'two of its rates have the same key' END,
            '[' || string_agg('{"key":' || to_json(coalesce((rate.value ->> 'key'), p_class)) || ',"number":' || CAST(rate.value ->> 'number' AS bigint) || ',"period":' || CASE rate.value ->> 'period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE CAST(rate.value ->> 'period' AS bigint) END || ',"burst":' || coalesce(CAST(rate.value ->> 'burst' AS bigint), greatest(1, coalesce(CAST(rate.value ->> 'cost' AS bigint), 1), CAST(rate.value ->> 'number' AS bigint) * 100000 / (CASE rate.value ->> 'period' WHEN 'second' THEN 1000000 WHEN 'minute' THEN 60000000 WHEN 'hour' THEN 3600000000 WHEN 'day' THEN 86400000000 ELSE CAST(rate.value ->> 'period' AS bigint) END))) || CASE WHEN CAST(rate.value ->> 'cost' AS bigint) > 1 THEN ',"cost":' || CAST(rate.value ->> 'cost' AS bigint) ELSE '' END || '}', ',' ORDER BY rate.place) || ']' INTO v_problem, v_stored
        FROM json_array_elements(v_rates) WITH ORDINALITY AS rate (value, place);
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(p_class, 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN v_stored;
END;
$$;

-- Stores by when a job must have started, if its policy says so.
CREATE OR REPLACE FUNCTION windlass_expire(p_job bigint, p_policy text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, least(coalesce(CAST(CAST(expiry ->> 'at' AS timestamptz) AT TIME ZONE 'UTC' AS timestamp), greatest(coalesce(j.scheduled_at, (statement_timestamp() AT TIME ZONE 'UTC')), (statement_timestamp() AT TIME ZONE 'UTC')) + CAST(least(CAST(expiry ->> 'in' AS numeric), 31622400000000) AS bigint) * interval '1 millisecond'), timestamp '9999-12-30 00:00:00.000000')
    FROM solid_queue_jobs j, (SELECT CAST(p_policy AS json) -> 'expiry' AS expiry) AS p WHERE j.id = p_job AND p.expiry IS NOT NULL;
END;
$$;

-- Keeps batches from ending until the transaction does: the one that a job joins, which must not be over, and the one that it
-- waits for. Transactions that add jobs do not wait for each other.
CREATE OR REPLACE FUNCTION windlass_keep_batches(p_class text, p_batch bigint, p_after bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_is_over boolean;
BEGIN
    PERFORM 1 FROM solid_queue_batches b WHERE b.id IN (p_batch, p_after) ORDER BY b.id FOR KEY SHARE;
    -- Statements of their own: they see what was committed before the lock was granted.
    IF p_after IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches b WHERE b.id = p_after AND b.active_job_batch_id LIKE 'windlass-%') THEN
        RAISE EXCEPTION 'cannot enqueue `%`: there is no batch % for it to wait for', p_class, p_after USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_batch IS NOT NULL THEN
        SELECT b.finished_at IS NOT NULL AND NOT (SELECT e.job_id FROM solid_queue_batch_executions e WHERE e.batch_id = b.id ORDER BY e.job_id DESC LIMIT 1) IS NOT NULL INTO v_is_over
        FROM solid_queue_batches b WHERE b.id = p_batch AND b.active_job_batch_id LIKE 'windlass-%';
        IF v_is_over IS NULL THEN
            RAISE EXCEPTION 'cannot enqueue `%`: there is no batch %', p_class, p_batch USING ERRCODE = 'invalid_parameter_value';
        ELSIF v_is_over THEN
            RAISE EXCEPTION 'cannot enqueue `%`: the batch % is over', p_class, p_batch USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Add jobs in the transaction that opens the batch, or from a job of the batch.';
        END IF;
    END IF;
END;
$$;

-- Enqueues any job, and returns its id and its outcome. If it is new, it gets the id p_id, or the next one.
CREATE OR REPLACE FUNCTION windlass_enqueue_any_v2(p_id bigint, p_class text, p_arguments text, p_queue text, p_priority integer, p_run_at timestamptz, p_delay_seconds double precision, p_unique_id text, p_unique_scope text, p_on_conflict text, p_idempotency_key text, p_concurrency_key text, p_concurrency_group text, p_concurrency_limit bigint, p_concurrency_on_conflict text, p_max_attempts bigint, p_max_crashes bigint, p_at_most_once boolean, p_traceparent text, p_tags text, p_meta text, p_version bigint, p_timeout_seconds double precision, p_backoff_seconds double precision, p_backoff_cap_seconds double precision, p_expires_in_seconds double precision, p_not_after timestamptz, p_retry_for_seconds double precision, p_keep_result_seconds double precision, p_tenant text, p_batch_id bigint, p_after_batch bigint, p_runs_on text, p_rates text, OUT id bigint, OUT outcome text)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamp := (statement_timestamp() AT TIME ZONE 'UTC');
    v_class windlass_classes := (SELECT c FROM windlass_classes c WHERE c.class_name = p_class);
    v_problem text := CASE
        WHEN p_class IS NULL THEN 'its class is missing'
        WHEN octet_length(p_class) NOT BETWEEN 1 AND 255 OR p_class COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`'
        WHEN octet_length(p_queue) NOT BETWEEN 1 AND 255 OR p_queue COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`'
        WHEN coalesce(octet_length(p_arguments), 0) + coalesce(octet_length(p_tags) + 9, 0) + coalesce(octet_length(p_meta) + 9, 0) > coalesce(v_class.max_arguments, 65536) THEN 'its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference'
        WHEN strpos(replace(p_arguments, E'\\\\', ''), E'\\u0000') > 0 THEN 'its arguments contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(p_arguments) > 2 * 120 AND windlass_is_too_deep(p_arguments, 120) THEN 'its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(p_arguments), E'\\ud') > 0 AND replace(p_arguments, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its arguments could not be read again: a text has half of a surrogate pair'
        WHEN p_arguments ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(p_arguments) THEN 'its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN num_nonnulls(p_run_at, p_delay_seconds, p_unique_id, p_unique_scope, p_on_conflict, p_idempotency_key, p_concurrency_key, p_concurrency_group, p_concurrency_limit, p_concurrency_on_conflict, p_max_attempts, p_max_crashes, p_at_most_once, p_traceparent, p_tags, p_meta, p_version, p_timeout_seconds, p_backoff_seconds, p_backoff_cap_seconds, p_expires_in_seconds, p_not_after, p_retry_for_seconds, p_keep_result_seconds, p_tenant, p_batch_id, p_after_batch, p_runs_on, p_rates) = 0 THEN NULL
        WHEN octet_length(p_idempotency_key) NOT BETWEEN 1 AND 255 THEN 'its idempotency_key must have 1 to 255 bytes and no NUL'
        WHEN octet_length(p_unique_id) NOT BETWEEN 1 AND 255 THEN 'its unique_id must have 1 to 255 bytes and no NUL'
        WHEN p_unique_scope NOT IN ('while_waiting', 'until_finished', 'until_result_expires') THEN 'its unique_scope must be one of while_waiting, until_finished, until_result_expires'
        WHEN p_on_conflict NOT IN ('existing', 'refuse', 'replace', 'run_again') THEN 'its on_conflict must be one of existing, refuse, replace, run_again'
        WHEN p_concurrency_on_conflict NOT IN ('block', 'discard', 'ordered') THEN 'its concurrency_on_conflict must be one of block, discard, ordered'
        WHEN p_concurrency_key = '' OR p_concurrency_group = '' OR octet_length(coalesce(p_concurrency_group, p_class) || '/' || p_concurrency_key) > 255 THEN 'its concurrency_key and concurrency_group must not be empty, have at most 255 bytes together, and no NUL'
        WHEN p_concurrency_key IS NULL AND (p_concurrency_limit IS NOT NULL OR p_concurrency_group IS NOT NULL OR p_concurrency_on_conflict IS NOT NULL) THEN 'its concurrency_key is missing, without which there is no limit'
        WHEN p_concurrency_limit < 1 THEN 'its concurrency_limit must be 1 or more; pause its queue to stop its jobs'
        WHEN p_concurrency_on_conflict = 'ordered' AND p_concurrency_limit <> 1 THEN 'its concurrency key is ordered, so its concurrency_limit must be 1'
        WHEN p_run_at IS NOT NULL AND p_delay_seconds IS NOT NULL THEN 'it has both run_at and delay_seconds; choose one'
        WHEN p_run_at AT TIME ZONE 'UTC' NOT BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31 23:59:59.999999' THEN 'its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z'
        WHEN NOT (p_delay_seconds >= 0 AND p_delay_seconds <= 31622400000) THEN 'its delay_seconds must be 0 or more, and at most 1000 years'
        WHEN p_max_attempts < 1 THEN 'its max_attempts must be an integer, 1 or more'
        WHEN p_max_crashes < 0 THEN 'its max_crashes must be an integer, 0 or more'
        WHEN p_version < 1 OR p_version > 4294967295 THEN 'its version must be an integer, 1 or more and at most 4294967295'
        WHEN coalesce(p_at_most_once, v_class.at_most_once) AND p_max_attempts > 1 THEN 'it has at-most-once delivery and more than one attempt; choose one'
        WHEN octet_length(p_traceparent) > 255 OR substr(p_traceparent, 4, 32) = '00000000000000000000000000000000' OR substr(p_traceparent, 37, 16) = '0000000000000000' OR p_traceparent COLLATE "C" !~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?)$' THEN 'its traceparent is not one of W3C Trace Context; pass the header as it is, `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits'
        WHEN strpos(replace(p_tags, E'\\\\', ''), E'\\u0000') > 0 THEN 'its tags contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(p_tags) > 2 * 119 AND windlass_is_too_deep(p_tags, 119) THEN 'its tags are nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(p_tags), E'\\ud') > 0 AND replace(p_tags, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its tags could not be read again: a text has half of a surrogate pair'
        WHEN p_tags ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(p_tags) THEN 'its tags could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN strpos(replace(p_meta, E'\\\\', ''), E'\\u0000') > 0 THEN 'its meta contains a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(p_meta) > 2 * 119 AND windlass_is_too_deep(p_meta, 119) THEN 'its meta is nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(p_meta), E'\\ud') > 0 AND replace(p_meta, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its meta could not be read again: a text has half of a surrogate pair'
        WHEN p_meta ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(p_meta) THEN 'its meta could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN NOT (p_timeout_seconds >= 0 AND p_timeout_seconds <= 31622400000) THEN 'its timeout_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (p_keep_result_seconds >= 0 AND p_keep_result_seconds <= 31622400000) THEN 'its keep_result_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (p_backoff_seconds >= 0 AND p_backoff_seconds <= 31622400000) THEN 'its backoff_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (p_backoff_cap_seconds >= 0 AND p_backoff_cap_seconds <= 31622400000) THEN 'its backoff_cap_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (p_expires_in_seconds > 0 AND p_expires_in_seconds <= 31622400000) THEN 'its expires_in_seconds must be above 0, and at most 1000 years'
        WHEN NOT (p_retry_for_seconds > 0 AND p_retry_for_seconds <= 31622400000) THEN 'its retry_for_seconds must be above 0, and at most 1000 years'
        WHEN p_backoff_cap_seconds IS NOT NULL AND p_backoff_seconds IS NULL THEN 'its backoff_seconds is missing, the first delay, without which there is no cap'
        WHEN p_not_after IS NOT NULL AND p_expires_in_seconds IS NOT NULL THEN 'it has both not_after and expires_in_seconds; choose one'
        WHEN p_not_after AT TIME ZONE 'UTC' NOT BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31 23:59:59.999999' THEN 'its not_after must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z'
        WHEN p_not_after <= p_run_at THEN 'it would expire before it is due: its not_after is not behind its run_at'
        WHEN octet_length(p_tenant) NOT BETWEEN 1 AND 255 OR (p_tenant) COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'its tenant must have 1 to 255 bytes and no control character'
        WHEN p_runs_on NOT IN ('success', 'failure', 'finish') THEN 'its runs_on must be one of success, failure, finish'
        WHEN p_runs_on IS NOT NULL AND p_after_batch IS NULL THEN 'its after_batch is missing, whose outcome its runs_on names'
        WHEN p_after_batch IS NOT NULL AND p_unique_id IS NOT NULL THEN 'it waits for a batch, and cannot have a unique_id'
        WHEN p_after_batch = p_batch_id THEN 'it waits for its own batch, which could not end'
        WHEN strpos(replace(p_rates, E'\\\\', ''), E'\\u0000') > 0 THEN 'its rates contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(p_rates) > 2 * 120 AND windlass_is_too_deep(p_rates, 120) THEN 'its rates are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(p_rates), E'\\ud') > 0 AND replace(p_rates, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its rates could not be read again: a text has half of a surrogate pair'
        WHEN p_rates ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(p_rates) THEN 'its rates could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text' END;
    v_json json;
    v_at timestamp;
    v_delay bigint;
    v_key text := coalesce(p_concurrency_group, p_class) || '/' || p_concurrency_key;
    v_limit integer := CASE WHEN p_concurrency_key IS NOT NULL THEN least(coalesce(p_concurrency_limit, 1), 2147483647) END;
    v_on_conflict text := nullif(p_concurrency_on_conflict, 'block');
    v_scope text;
    v_id bigint := p_id;
    v_job bigint;
    v_holder bigint;
    v_place integer;
    v_hold windlass_unique_jobs;
    v_has_run boolean := false;
    v_is_behind boolean := false;
    v_is_held boolean := false;
    v_internal text;
    v_extras text;
    v_policy text;
    v_rates text;
    v_share text;
    v_gate text;
    v_wakes boolean := false;
BEGIN
    IF v_problem IS NULL THEN
        BEGIN
            v_json := p_arguments;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
            v_problem := 'its arguments are not JSON';
        END;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(coalesce(p_class, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_class.internal OR (v_class.internal IS NULL AND EXISTS (SELECT 1 FROM windlass_settings s WHERE s.name = 'strict_classes' AND s.value = 'on')) THEN
        PERFORM windlass_refuse_class(p_class, v_class.internal IS NULL);
    END IF;
    -- What is left out is that of the class.
    p_queue := coalesce(p_queue, v_class.queue_name, 'default');
    p_arguments := coalesce(p_arguments, 'null');
    p_priority := coalesce(p_priority, v_class.priority, 0);
    p_max_crashes := coalesce(p_max_crashes, v_class.max_crashes);
    IF NOT coalesce(p_at_most_once, v_class.at_most_once, false) THEN
        p_max_attempts := coalesce(p_max_attempts, v_class.max_attempts);
    END IF;
    v_extras := CAST(CAST(v_class.policy AS json) -> 'extras' AS text);
    IF num_nonnulls(p_tags, p_meta, p_version) > 0 THEN
        v_extras := windlass_extras(p_class, p_tags, p_meta, p_version, v_extras);
    END IF;
    v_policy := CASE WHEN num_nonnulls(p_unique_scope, p_tags, p_meta, p_version, p_timeout_seconds, p_backoff_seconds, p_backoff_cap_seconds, p_expires_in_seconds, p_not_after, p_retry_for_seconds, p_keep_result_seconds, p_at_most_once) = 0 THEN v_class.policy ELSE nullif('{' || substr(coalesce(',"delivery":' || CASE WHEN p_at_most_once IS NULL THEN CAST(CAST(v_class.policy AS json) -> 'delivery' AS text) END, '') || coalesce(',"backoff":' || coalesce(CASE WHEN p_backoff_cap_seconds IS NULL THEN '{"fixed":' || CAST((CAST(CASE WHEN p_backoff_seconds > 0 AND p_backoff_seconds < 0.000001 THEN 1 ELSE round(p_backoff_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}' ELSE '{"exponential":{"first":' || CAST((CAST(CASE WHEN p_backoff_seconds > 0 AND p_backoff_seconds < 0.000001 THEN 1 ELSE round(p_backoff_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || ',"cap":' || CAST((CAST(CASE WHEN p_backoff_cap_seconds > 0 AND p_backoff_cap_seconds < 0.000001 THEN 1 ELSE round(p_backoff_cap_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}}' END, CAST(CAST(v_class.policy AS json) -> 'backoff' AS text)), '') || coalesce(',"on_failure":' || CAST(CAST(v_class.policy AS json) -> 'on_failure' AS text), '') || coalesce(',"keep_finished":' || CAST(CAST(v_class.policy AS json) -> 'keep_finished' AS text), '') || coalesce(',"keep_result":' || coalesce(CAST((CAST(CASE WHEN p_keep_result_seconds > 0 AND p_keep_result_seconds < 0.000001 THEN 1 ELSE round(p_keep_result_seconds * 1000000) END AS bigint) + 999) / 1000 AS text), CAST(CAST(v_class.policy AS json) -> 'keep_result' AS text)), '') || coalesce(',"unique_scope":' || coalesce('"' || p_unique_scope || '"', CAST(CAST(v_class.policy AS json) -> 'unique_scope' AS text)), '') || coalesce(',"timeout":' || coalesce(CAST((CAST(CASE WHEN p_timeout_seconds > 0 AND p_timeout_seconds < 0.000001 THEN 1 ELSE round(p_timeout_seconds * 1000000) END AS bigint) + 999) / 1000 AS text), CAST(CAST(v_class.policy AS json) -> 'timeout' AS text)), '') || coalesce(',"timeout_grace":' || CAST(CAST(v_class.policy AS json) -> 'timeout_grace' AS text), '') || coalesce(',"on_timeout":' || CAST(CAST(v_class.policy AS json) -> 'on_timeout' AS text), '') || coalesce(',"expiry":' || coalesce(coalesce('{"in":' || CAST((CAST(CASE WHEN p_expires_in_seconds > 0 AND p_expires_in_seconds < 0.000001 THEN 1 ELSE round(p_expires_in_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}', '{"at":' || '"' || regexp_replace(to_char(p_not_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '([.]000000|000)$', '') || 'Z' || '"' || '}'), CAST(CAST(v_class.policy AS json) -> 'expiry' AS text)), '') || coalesce(',"retry_limit":' || coalesce('{"for":' || CAST((CAST(CASE WHEN p_retry_for_seconds > 0 AND p_retry_for_seconds < 0.000001 THEN 1 ELSE round(p_retry_for_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}', CAST(CAST(v_class.policy AS json) -> 'retry_limit' AS text)), '') || coalesce(',"propagation_style":' || CAST(CAST(v_class.policy AS json) -> 'propagation_style' AS text), '') || coalesce(',"extras":' || v_extras, ''), 2) || '}', '{}') END;
    v_scope := coalesce(p_unique_scope, CAST(v_class.policy AS json) ->> 'unique_scope', 'until_finished');
    p_at_most_once := coalesce(p_at_most_once, v_class.at_most_once, CAST(CAST(v_class.policy AS json) -> 'delivery' AS text) IS NOT NULL, false);
    IF num_nonnulls(p_batch_id, p_after_batch) > 0 THEN
        PERFORM windlass_keep_batches(p_class, p_batch_id, p_after_batch);
    END IF;
    v_rates := CASE WHEN p_rates IS NULL THEN v_class.rates ELSE windlass_rates_of(p_class, p_rates) END;
    IF p_tenant IS NOT NULL THEN
        v_share := (SELECT chr(29) || p_queue || chr(28) || p_tenant FROM windlass_fair_queues f WHERE f.queue_name = p_queue AND NOT f.is_ending);
    END IF;
    IF v_rates IS NOT NULL OR v_share IS NOT NULL THEN
        v_gate := CASE WHEN v_on_conflict = 'ordered' THEN '' ELSE concat_ws(chr(31), v_share,
            (SELECT string_agg(rate.value ->> 'key', chr(31) ORDER BY rate.place)
            FROM json_array_elements(CAST(v_rates AS json)) WITH ORDINALITY AS rate (value, place))) END || coalesce(chr(30) || v_key, '');
    END IF;
    v_at := p_run_at AT TIME ZONE 'UTC';
    v_delay := round(p_delay_seconds * 1000000);
    outcome := 'new';

    IF v_id IS NULL AND p_unique_id IS NULL AND p_idempotency_key IS NULL THEN
        INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, idempotency_key, unique_id, concurrency_key, concurrency_slots, concurrency_conflict, rates, gate, created_at, updated_at) VALUES (p_queue, p_class, p_arguments, p_priority, CAST(CASE WHEN p_max_attempts IS NOT NULL THEN least(p_max_attempts, 2147483647) END AS integer), CAST(CASE WHEN p_max_crashes IS NOT NULL THEN least(p_max_crashes, 2147483647) END AS integer), p_at_most_once, v_policy, p_traceparent, p_tenant, p_batch_id, NULL, coalesce(CAST(v_at AS timestamp), (statement_timestamp() AT TIME ZONE 'UTC' + v_delay * interval '1 microsecond')), p_idempotency_key, p_unique_id, v_key, v_limit, v_on_conflict, v_rates, v_gate, (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC'))
        RETURNING solid_queue_jobs.id, scheduled_at INTO v_job, v_at;
    ELSE
        v_id := coalesce(v_id, nextval(CAST(pg_get_serial_sequence('solid_queue_jobs', 'id') AS regclass)));
        -- A used key decides, whatever holds the unique id.
        SELECT j.id INTO v_job FROM solid_queue_jobs j WHERE j.idempotency_key = p_idempotency_key;
        IF FOUND THEN
            outcome := 'existing';
            id := v_job;
            RETURN;
        END IF;
        FOR v_round IN 1 .. 10 LOOP
            EXIT WHEN p_unique_id IS NULL;
            INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) VALUES (p_unique_id, v_id, v_scope)
            ON CONFLICT (unique_id) DO NOTHING;
            v_is_held := FOUND;
            EXIT WHEN v_is_held;
            SELECT * INTO v_hold FROM windlass_unique_jobs u WHERE u.unique_id = p_unique_id FOR UPDATE;
            CONTINUE WHEN NOT FOUND; -- deleted meanwhile
            -- The job that the row names holds the unique id, or else the one that has to end before it.
            v_holder := v_hold.job_id;
            v_place := windlass_place_of(v_holder);
            IF NOT (v_place <= 2 OR v_place = 3 AND v_hold.scope <> 'while_waiting' OR v_place = 4 AND v_hold.scope = 'until_result_expires') THEN
                v_holder := v_hold.after_job_id;
                v_place := windlass_place_of(v_holder);
                IF NOT (v_place <= 2 OR v_place = 3 AND v_hold.scope <> 'while_waiting' OR v_place = 4 AND v_hold.scope = 'until_result_expires') THEN
                    v_holder := NULL;
                END IF;
            END IF;
            IF v_holder IS NULL THEN
                UPDATE windlass_unique_jobs u SET job_id = v_id, scope = v_scope, after_job_id = NULL
                WHERE u.unique_id = p_unique_id;
                v_is_held := true;
                EXIT;
            ELSIF p_on_conflict = 'refuse' THEN
                RAISE EXCEPTION 'cannot enqueue `%`: job % holds the unique id `%`', p_class, v_holder, p_unique_id
                    USING ERRCODE = 'unique_violation';
            ELSIF v_place = 3 AND p_on_conflict IN ('replace', 'run_again') THEN
                UPDATE windlass_unique_jobs u SET job_id = v_id, scope = v_scope, after_job_id = v_holder
                WHERE u.unique_id = p_unique_id;
                v_is_behind := true;
                v_is_held := true;
                outcome := 'again';
                EXIT;
            ELSIF v_place <= 2 THEN
                -- From here on it cannot be claimed before this transaction ends.
                CASE v_place
                    WHEN 0 THEN PERFORM 1 FROM solid_queue_ready_executions e WHERE e.job_id = v_holder FOR UPDATE;
                    WHEN 1 THEN PERFORM 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = v_holder FOR UPDATE;
                    ELSE PERFORM 1 FROM solid_queue_blocked_executions e WHERE e.job_id = v_holder FOR UPDATE;
                END CASE;
                CONTINUE WHEN NOT FOUND;
            END IF;
            v_job := v_holder;
            outcome := 'existing';
            IF v_place > 2 OR p_on_conflict IS DISTINCT FROM 'replace' THEN
                id := v_job;
                RETURN;
            END IF;
            -- What an internal class waits for is not replaced from outside.
            SELECT j.class_name INTO v_internal FROM solid_queue_jobs j JOIN windlass_classes c ON c.class_name = j.class_name
            WHERE j.id = v_holder AND c.internal;
            IF FOUND THEN
                PERFORM windlass_refuse_class(v_internal, false);
            END IF;
            outcome := 'replaced';
            v_is_held := true;
            UPDATE windlass_unique_jobs u SET job_id = v_holder, scope = v_scope,
                after_job_id = CASE WHEN v_holder = v_hold.job_id THEN v_hold.after_job_id END
            WHERE u.unique_id = p_unique_id;
            UPDATE solid_queue_jobs j SET queue_name = p_queue, class_name = p_class, arguments = p_arguments, priority = p_priority, max_attempts = CAST(CASE WHEN p_max_attempts IS NOT NULL THEN least(p_max_attempts, 2147483647) END AS integer), max_crashes = CAST(CASE WHEN p_max_crashes IS NOT NULL THEN least(p_max_crashes, 2147483647) END AS integer), at_most_once = p_at_most_once, policy = v_policy, traceparent = p_traceparent, tenant = p_tenant, scheduled_at = coalesce(CAST(v_at AS timestamp), (statement_timestamp() AT TIME ZONE 'UTC' + v_delay * interval '1 microsecond')), concurrency_key = v_key, concurrency_slots = v_limit, concurrency_conflict = v_on_conflict, rates = v_rates, gate = v_gate, attempts = 0, crash_count = 0, updated_at = v_now
            WHERE j.id = v_holder RETURNING j.scheduled_at, j.last_claim_id IS NOT NULL INTO v_at, v_has_run;
            -- The newest stay, and those of released runs are counted by themselves.
            DELETE FROM windlass_attempts a WHERE a.job_id = v_holder AND a.id <=
                (SELECT o.id FROM windlass_attempts o WHERE o.job_id = v_holder
                 AND (o.outcome = 'released') = (a.outcome = 'released') ORDER BY o.id DESC LIMIT 1 OFFSET 20);
            DELETE FROM windlass_expiries e WHERE e.job_id = v_holder;
            IF v_policy LIKE '%"expiry":%' THEN
                PERFORM windlass_expire(v_holder, v_policy);
            END IF;
            -- What the old one has done, which is undone, and what it waits for.
            DELETE FROM windlass_steps t WHERE t.job_id = v_holder;
            DELETE FROM windlass_waits w WHERE w.job_id = v_holder;
            DELETE FROM windlass_edges w WHERE w.child_job_id = v_holder AND w.otherwise = 'join';
            WITH let_go AS (UPDATE windlass_edges w SET runs_on = 'finish', outcome = 'failed'
                WHERE w.parent_job_id = v_holder AND w.runs_on = 'failure' AND w.otherwise = 'undo' RETURNING w.child_job_id)
            INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'after', g.child_job_id FROM let_go g;
            -- What waits for another job to end stays blocked, whatever its new time is.
            UPDATE solid_queue_blocked_executions e SET queue_name = p_queue, priority = p_priority
            WHERE e.job_id = v_holder AND e.concurrency_key = ' ';
            IF FOUND THEN
                id := v_job;
                RETURN;
            END IF;
            DELETE FROM solid_queue_ready_executions e WHERE e.job_id = v_holder;
            DELETE FROM solid_queue_scheduled_executions e WHERE e.job_id = v_holder;
            -- Others of an ordered key may wait behind one with a rate.
            WITH gone AS (DELETE FROM solid_queue_blocked_executions e WHERE e.job_id = v_holder RETURNING e.gate)
            INSERT INTO windlass_wanted_keys (key) SELECT substr(g.gate, strpos(g.gate, chr(30)) + 1) FROM gone g
                WHERE strpos(g.gate, chr(30)) > 0;
            EXIT;
        END LOOP;
        IF p_unique_id IS NOT NULL AND NOT v_is_held THEN
            RAISE EXCEPTION 'cannot enqueue `%`: the job that holds its unique id changes all the time', p_class
                USING ERRCODE = 'serialization_failure', HINT = 'Enqueue it again.';
        END IF;
        IF outcome <> 'replaced' THEN
            INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, idempotency_key, unique_id, concurrency_key, concurrency_slots, concurrency_conflict, rates, gate, created_at, updated_at, id) VALUES (p_queue, p_class, p_arguments, p_priority, CAST(CASE WHEN p_max_attempts IS NOT NULL THEN least(p_max_attempts, 2147483647) END AS integer), CAST(CASE WHEN p_max_crashes IS NOT NULL THEN least(p_max_crashes, 2147483647) END AS integer), p_at_most_once, v_policy, p_traceparent, p_tenant, p_batch_id, NULL, coalesce(CAST(v_at AS timestamp), (statement_timestamp() AT TIME ZONE 'UTC' + v_delay * interval '1 microsecond')), p_idempotency_key, p_unique_id, v_key, v_limit, v_on_conflict, v_rates, v_gate, (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC'), v_id)
            ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
            RETURNING solid_queue_jobs.id, scheduled_at INTO v_job, v_at;
            IF NOT FOUND THEN
                SELECT j.id INTO v_job FROM solid_queue_jobs j WHERE j.idempotency_key = p_idempotency_key;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'cannot enqueue `%`: the job with its idempotency key was deleted meanwhile', p_class
                        USING ERRCODE = 'serialization_failure', HINT = 'Enqueue it again.';
                END IF;
                outcome := 'existing';
                id := v_job;
                RETURN;
            END IF;
        END IF;
    END IF;

    id := v_job;
    IF v_policy LIKE '%"expiry":%' AND outcome <> 'replaced' THEN
        PERFORM windlass_expire(v_job, v_policy);
    END IF;
    IF v_class.quota IS NOT NULL AND outcome <> 'replaced' AND p_after_batch IS NULL THEN
        PERFORM windlass_take_places(p_class, v_class.quota, v_job);
    END IF;
    IF p_batch_id IS NOT NULL AND outcome <> 'replaced' THEN
        INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) VALUES (v_job, p_batch_id, v_now);
        INSERT INTO windlass_wanted_keys (kind, target_id, amount) VALUES ('batch', p_batch_id, 1);
    END IF;
    IF p_after_batch IS NOT NULL THEN
        INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at)
        VALUES (v_job, p_queue, p_priority, '  ', timestamp '9999-12-31 23:59:59.000000', v_now);
        INSERT INTO windlass_edges (child_job_id, parent_batch_id, runs_on, otherwise, created_at)
        VALUES (v_job, p_after_batch, coalesce(p_runs_on, 'success'), 'discard', v_now);
        INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('batch', p_after_batch);
        v_wakes := true;
    ELSIF v_is_behind THEN
        INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at)
        VALUES (v_job, p_queue, p_priority, ' ', timestamp '9999-12-31 23:59:59.000000', v_now);
    ELSIF v_at > v_now THEN
        INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
        VALUES (v_job, p_queue, p_priority, v_at, v_now);
    ELSIF v_key IS NOT NULL OR v_gate IS NOT NULL THEN
        INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at)
        VALUES (v_job, p_queue, CASE WHEN v_on_conflict = 'ordered' THEN -2147483648 ELSE p_priority END,
            CASE WHEN v_gate IS NULL THEN v_key ELSE '    ' END, v_gate,
            CASE WHEN v_gate IS NULL AND v_on_conflict = 'discard' AND NOT v_has_run THEN timestamp '9999-12-31 00:00:00.000000'
            ELSE timestamp '9999-12-31 23:59:59.000000' END, v_now);
        INSERT INTO windlass_wanted_keys (key, kind, name)
        VALUES (CASE WHEN v_gate IS NULL THEN v_key END, CASE WHEN v_gate IS NOT NULL THEN 'gate' END, v_gate);
        v_wakes := true;
    ELSE
        INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
        VALUES (v_job, p_queue, p_priority, p_class, p_at_most_once OR coalesce(p_max_crashes = 0, false), v_now);
        v_wakes := true;
    END IF;
    IF v_wakes AND current_setting('windlass.woken_by', true) IS DISTINCT FROM CAST(statement_timestamp() AS text) THEN
        PERFORM windlass_wake();
    END IF;
END;
$$;

-- Enqueues one job, and returns its id and its outcome. Most jobs have few columns. They take a short way: a session
-- prepares each expression of a function anew in each transaction.
CREATE OR REPLACE FUNCTION windlass_enqueue_job_v2(p_id bigint, p_class text, p_arguments text, p_queue text, p_priority integer, p_run_at timestamptz, p_delay_seconds double precision, p_unique_id text, p_unique_scope text, p_on_conflict text, p_idempotency_key text, p_concurrency_key text, p_concurrency_group text, p_concurrency_limit bigint, p_concurrency_on_conflict text, p_max_attempts bigint, p_max_crashes bigint, p_at_most_once boolean, p_traceparent text, p_tags text, p_meta text, p_version bigint, p_timeout_seconds double precision, p_backoff_seconds double precision, p_backoff_cap_seconds double precision, p_expires_in_seconds double precision, p_not_after timestamptz, p_retry_for_seconds double precision, p_keep_result_seconds double precision, p_tenant text, p_batch_id bigint, p_after_batch bigint, p_runs_on text, p_rates text, OUT id bigint, OUT outcome text)
LANGUAGE plpgsql AS $$
DECLARE
    v_class windlass_classes := (SELECT c FROM windlass_classes c WHERE c.class_name = p_class);
    v_problem text;
    v_json json;
BEGIN
    IF p_id IS NOT NULL OR num_nonnulls(p_run_at, p_delay_seconds, p_unique_id, p_unique_scope, p_on_conflict, p_idempotency_key, p_concurrency_key, p_concurrency_group, p_concurrency_limit, p_concurrency_on_conflict, p_max_attempts, p_max_crashes, p_at_most_once, p_traceparent, p_tags, p_meta, p_version, p_timeout_seconds, p_backoff_seconds, p_backoff_cap_seconds, p_expires_in_seconds, p_not_after, p_retry_for_seconds, p_keep_result_seconds, p_tenant, p_batch_id, p_after_batch, p_runs_on, p_rates, v_class.max_attempts, v_class.max_crashes, v_class.at_most_once, v_class.policy, v_class.rates) > 0 THEN
        SELECT e.id, e.outcome INTO id, outcome FROM windlass_enqueue_any_v2(p_id, p_class, p_arguments, p_queue, p_priority, p_run_at, p_delay_seconds, p_unique_id, p_unique_scope, p_on_conflict, p_idempotency_key, p_concurrency_key, p_concurrency_group, p_concurrency_limit, p_concurrency_on_conflict, p_max_attempts, p_max_crashes, p_at_most_once, p_traceparent, p_tags, p_meta, p_version, p_timeout_seconds, p_backoff_seconds, p_backoff_cap_seconds, p_expires_in_seconds, p_not_after, p_retry_for_seconds, p_keep_result_seconds, p_tenant, p_batch_id, p_after_batch, p_runs_on, p_rates) AS e;
        RETURN;
    END IF;
    v_problem := CASE
        WHEN p_class IS NULL THEN 'its class is missing'
        WHEN octet_length(p_class) NOT BETWEEN 1 AND 255 OR p_class COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`'
        WHEN octet_length(p_queue) NOT BETWEEN 1 AND 255 OR p_queue COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`'
        WHEN coalesce(octet_length(p_arguments), 0) + coalesce(octet_length(p_tags) + 9, 0) + coalesce(octet_length(p_meta) + 9, 0) > coalesce(v_class.max_arguments, 65536) THEN 'its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference'
        WHEN strpos(replace(p_arguments, E'\\\\', ''), E'\\u0000') > 0 THEN 'its arguments contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(p_arguments) > 2 * 120 AND windlass_is_too_deep(p_arguments, 120) THEN 'its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(p_arguments), E'\\ud') > 0 AND replace(p_arguments, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its arguments could not be read again: a text has half of a surrogate pair'
        WHEN p_arguments ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(p_arguments) THEN 'its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text' END;
    IF v_problem IS NULL THEN
        BEGIN
            v_json := p_arguments;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
            v_problem := 'its arguments are not JSON';
        END;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(coalesce(p_class, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_class.internal OR (v_class.internal IS NULL AND EXISTS (SELECT 1 FROM windlass_settings s WHERE s.name = 'strict_classes' AND s.value = 'on')) THEN
        PERFORM windlass_refuse_class(p_class, v_class.internal IS NULL);
    END IF;
    INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, active_job_id, created_at, updated_at) VALUES (coalesce(p_queue, v_class.queue_name, 'default'), p_class, coalesce(p_arguments, 'null'), coalesce(p_priority, v_class.priority, 0), NULL, NULL, false, NULL, NULL, NULL, NULL, (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC')) RETURNING solid_queue_jobs.id INTO id;
    IF v_class.quota IS NOT NULL THEN
        PERFORM windlass_take_places(p_class, v_class.quota, id);
    END IF;
    INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
    VALUES (id, coalesce(p_queue, v_class.queue_name, 'default'), coalesce(p_priority, v_class.priority, 0), p_class, false, (statement_timestamp() AT TIME ZONE 'UTC'));
    IF current_setting('windlass.woken_by', true) IS DISTINCT FROM CAST(statement_timestamp() AS text) THEN
        PERFORM windlass_wake();
    END IF;
    outcome := 'new';
END;
$$;

CREATE OR REPLACE FUNCTION windlass_insert_enqueue_v2() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    v_done record;
BEGIN
    -- The columns of another table may have types of the caller, which would be computed with the rights of the owner.
    IF TG_RELID <> CAST('windlass_enqueue_v2' AS regclass) THEN
        RAISE EXCEPTION 'this function is the trigger of windlass_enqueue_v2 alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    v_done := windlass_enqueue_job_v2(NULL, NEW.class, NEW.arguments, NEW.queue, NEW.priority, NEW.run_at, NEW.delay_seconds, NEW.unique_id, NEW.unique_scope, NEW.on_conflict, NEW.idempotency_key, NEW.concurrency_key, NEW.concurrency_group, NEW.concurrency_limit, NEW.concurrency_on_conflict, NEW.max_attempts, NEW.max_crashes, NEW.at_most_once, NEW.traceparent, NEW.tags, NEW.meta, NEW.version, NEW.timeout_seconds, NEW.backoff_seconds, NEW.backoff_cap_seconds, NEW.expires_in_seconds, NEW.not_after, NEW.retry_for_seconds, NEW.keep_result_seconds, NEW.tenant, NEW.batch_id, NEW.after_batch, NEW.runs_on, NEW.rates);
    NEW.id := v_done.id;
    NEW.outcome := v_done.outcome;
    RETURN NEW;
END;
$$;

CREATE OR REPLACE TRIGGER windlass_enqueue_v2 INSTEAD OF INSERT ON windlass_enqueue_v2
    FOR EACH ROW EXECUTE FUNCTION windlass_insert_enqueue_v2();

CREATE OR REPLACE VIEW windlass_enqueue AS SELECT * FROM windlass_enqueue_v2;

CREATE OR REPLACE FUNCTION windlass_enqueue_v2(class text, arguments text DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, run_at timestamptz DEFAULT NULL, delay_seconds double precision DEFAULT NULL, unique_id text DEFAULT NULL, unique_scope text DEFAULT NULL, on_conflict text DEFAULT NULL, idempotency_key text DEFAULT NULL, concurrency_key text DEFAULT NULL, concurrency_group text DEFAULT NULL, concurrency_limit bigint DEFAULT NULL, concurrency_on_conflict text DEFAULT NULL, max_attempts bigint DEFAULT NULL, max_crashes bigint DEFAULT NULL, at_most_once boolean DEFAULT NULL, traceparent text DEFAULT NULL, tags text DEFAULT NULL, meta text DEFAULT NULL, version bigint DEFAULT NULL, timeout_seconds double precision DEFAULT NULL, backoff_seconds double precision DEFAULT NULL, backoff_cap_seconds double precision DEFAULT NULL, expires_in_seconds double precision DEFAULT NULL, not_after timestamptz DEFAULT NULL, retry_for_seconds double precision DEFAULT NULL, keep_result_seconds double precision DEFAULT NULL, tenant text DEFAULT NULL, batch_id bigint DEFAULT NULL, after_batch bigint DEFAULT NULL, runs_on text DEFAULT NULL, rates text DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RETURN (windlass_enqueue_job_v2(NULL, class COLLATE "default", arguments, queue, priority, run_at, delay_seconds, unique_id, unique_scope, on_conflict, idempotency_key, concurrency_key, concurrency_group, concurrency_limit, concurrency_on_conflict, max_attempts, max_crashes, at_most_once, traceparent, tags, meta, version, timeout_seconds, backoff_seconds, backoff_cap_seconds, expires_in_seconds, not_after, retry_for_seconds, keep_result_seconds, tenant, batch_id, after_batch, runs_on, rates)).id;
END;
$$;

CREATE OR REPLACE FUNCTION windlass_enqueue(class text, arguments text DEFAULT NULL, queue text DEFAULT NULL, priority integer DEFAULT NULL, run_at timestamptz DEFAULT NULL, delay_seconds double precision DEFAULT NULL, unique_id text DEFAULT NULL, unique_scope text DEFAULT NULL, on_conflict text DEFAULT NULL, idempotency_key text DEFAULT NULL, concurrency_key text DEFAULT NULL, concurrency_group text DEFAULT NULL, concurrency_limit bigint DEFAULT NULL, concurrency_on_conflict text DEFAULT NULL, max_attempts bigint DEFAULT NULL, max_crashes bigint DEFAULT NULL, at_most_once boolean DEFAULT NULL, traceparent text DEFAULT NULL, tags text DEFAULT NULL, meta text DEFAULT NULL, version bigint DEFAULT NULL, timeout_seconds double precision DEFAULT NULL, backoff_seconds double precision DEFAULT NULL, backoff_cap_seconds double precision DEFAULT NULL, expires_in_seconds double precision DEFAULT NULL, not_after timestamptz DEFAULT NULL, retry_for_seconds double precision DEFAULT NULL, keep_result_seconds double precision DEFAULT NULL, tenant text DEFAULT NULL, batch_id bigint DEFAULT NULL, after_batch bigint DEFAULT NULL, runs_on text DEFAULT NULL, rates text DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RETURN (windlass_enqueue_job_v2(NULL, class COLLATE "default", arguments, queue, priority, run_at, delay_seconds, unique_id, unique_scope, on_conflict, idempotency_key, concurrency_key, concurrency_group, concurrency_limit, concurrency_on_conflict, max_attempts, max_crashes, at_most_once, traceparent, tags, meta, version, timeout_seconds, backoff_seconds, backoff_cap_seconds, expires_in_seconds, not_after, retry_for_seconds, keep_result_seconds, tenant, batch_id, after_batch, runs_on, rates)).id;
END;
$$;

-- Enqueues a list of jobs of one class, all or none, and returns their ids, in order. Each job is an object whose keys are
-- columns of the view windlass_enqueue, with values of the JSON type that each column takes.
CREATE OR REPLACE FUNCTION windlass_enqueue_many_v2(class text, jobs json) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    v_place bigint;
    v_problem text;
    v_jobs jsonb;
    v_ids bigint[];
    v_done record;
    v_are_named boolean;
    v_join_batches boolean;
    v_have_tenants boolean;
    v_class windlass_classes;
    v_are_distinct boolean;
    r record;
BEGIN
    v_problem := CASE
        WHEN windlass_enqueue_many_v2.class IS NULL THEN 'its class is missing'
        WHEN octet_length(windlass_enqueue_many_v2.class) NOT BETWEEN 1 AND 255 OR windlass_enqueue_many_v2.class COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`' END;
    IF v_problem IS NULL THEN
        BEGIN
            v_jobs := jobs;
        EXCEPTION WHEN untranslatable_character OR invalid_text_representation OR numeric_value_out_of_range THEN
            v_problem := 'its jobs contain a NUL character, half of a surrogate pair, or a number that is too long';
        END;
    END IF;
    IF v_problem IS NULL AND jsonb_typeof(v_jobs) IS DISTINCT FROM 'array' THEN
        v_problem := 'its jobs are not a JSON array of objects';
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(coalesce(class, ''), 80), v_problem
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT min(e.place) FILTER (WHERE CASE WHEN jsonb_typeof(e.value) <> 'object' THEN true WHEN e.value - 'arguments' = jsonb '{}' THEN false ELSE jsonb_typeof(e.value -> 'queue') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'priority') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'run_at') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'delay_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'max_attempts') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'traceparent') NOT IN ('string', 'null') OR (e.value ->> 'run_at') COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$' OR (e.value ->> 'not_after') COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$' OR (e.value - ARRAY['arguments', 'queue', 'priority', 'run_at', 'delay_seconds', 'max_attempts', 'traceparent'] <> jsonb '{}' AND (e.value - ARRAY['arguments', 'queue', 'priority', 'run_at', 'delay_seconds', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_limit', 'concurrency_on_conflict', 'max_attempts', 'max_crashes', 'at_most_once', 'traceparent', 'tags', 'meta', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'not_after', 'retry_for_seconds', 'keep_result_seconds', 'tenant', 'batch_id', 'after_batch', 'runs_on', 'rates'] <> jsonb '{}' OR jsonb_typeof(e.value -> 'unique_id') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'unique_scope') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'on_conflict') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'idempotency_key') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'concurrency_key') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'concurrency_group') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'concurrency_limit') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'concurrency_on_conflict') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'max_crashes') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'at_most_once') NOT IN ('boolean', 'null') OR jsonb_typeof(e.value -> 'tags') NOT IN ('array', 'null') OR jsonb_typeof(e.value -> 'meta') NOT IN ('object', 'null') OR jsonb_typeof(e.value -> 'version') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'timeout_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'backoff_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'backoff_cap_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'expires_in_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'not_after') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'retry_for_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'keep_result_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'tenant') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'batch_id') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'after_batch') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'runs_on') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'rates') NOT IN ('array', 'null'))) END),
        coalesce(bool_or(e.value ?| ARRAY['unique_id', 'idempotency_key', 'concurrency_key', 'tags', 'meta', 'version', 'after_batch', 'rates']), false),
        coalesce(bool_or(e.value ?| ARRAY['batch_id', 'after_batch']), false), bool_or(e.value ? 'tenant')
        INTO v_place, v_are_named, v_join_batches, v_have_tenants
        FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (value, place);
    IF v_place IS NOT NULL THEN
        SELECT CASE WHEN jsonb_typeof(e.value) <> 'object' THEN 'it is not an object'
            WHEN e.value - ARRAY['arguments', 'queue', 'priority', 'run_at', 'delay_seconds', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_limit', 'concurrency_on_conflict', 'max_attempts', 'max_crashes', 'at_most_once', 'traceparent', 'tags', 'meta', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'not_after', 'retry_for_seconds', 'keep_result_seconds', 'tenant', 'batch_id', 'after_batch', 'runs_on', 'rates'] <> jsonb '{}' THEN 'a job has no key '
                || (SELECT min(key) FROM jsonb_object_keys(e.value - ARRAY['arguments', 'queue', 'priority', 'run_at', 'delay_seconds', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_limit', 'concurrency_on_conflict', 'max_attempts', 'max_crashes', 'at_most_once', 'traceparent', 'tags', 'meta', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'not_after', 'retry_for_seconds', 'keep_result_seconds', 'tenant', 'batch_id', 'after_batch', 'runs_on', 'rates']) AS key)
            ELSE CASE
            WHEN jsonb_typeof(e.value -> 'queue') NOT IN ('string', 'null') THEN 'its queue must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'priority') NOT IN ('number', 'null') THEN 'its priority must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'run_at') NOT IN ('string', 'null') THEN 'its run_at must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'delay_seconds') NOT IN ('number', 'null') THEN 'its delay_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'unique_id') NOT IN ('string', 'null') THEN 'its unique_id must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'unique_scope') NOT IN ('string', 'null') THEN 'its unique_scope must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'on_conflict') NOT IN ('string', 'null') THEN 'its on_conflict must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'idempotency_key') NOT IN ('string', 'null') THEN 'its idempotency_key must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'concurrency_key') NOT IN ('string', 'null') THEN 'its concurrency_key must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'concurrency_group') NOT IN ('string', 'null') THEN 'its concurrency_group must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'concurrency_limit') NOT IN ('number', 'null') THEN 'its concurrency_limit must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'concurrency_on_conflict') NOT IN ('string', 'null') THEN 'its concurrency_on_conflict must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'max_attempts') NOT IN ('number', 'null') THEN 'its max_attempts must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'max_crashes') NOT IN ('number', 'null') THEN 'its max_crashes must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'at_most_once') NOT IN ('boolean', 'null') THEN 'its at_most_once must be true or false'
            WHEN jsonb_typeof(e.value -> 'traceparent') NOT IN ('string', 'null') THEN 'its traceparent must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'tags') NOT IN ('array', 'null') THEN 'its tags must be a JSON array'
            WHEN jsonb_typeof(e.value -> 'meta') NOT IN ('object', 'null') THEN 'its meta must be a JSON object'
            WHEN jsonb_typeof(e.value -> 'version') NOT IN ('number', 'null') THEN 'its version must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'timeout_seconds') NOT IN ('number', 'null') THEN 'its timeout_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'backoff_seconds') NOT IN ('number', 'null') THEN 'its backoff_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'backoff_cap_seconds') NOT IN ('number', 'null') THEN 'its backoff_cap_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'expires_in_seconds') NOT IN ('number', 'null') THEN 'its expires_in_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'not_after') NOT IN ('string', 'null') THEN 'its not_after must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'retry_for_seconds') NOT IN ('number', 'null') THEN 'its retry_for_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'keep_result_seconds') NOT IN ('number', 'null') THEN 'its keep_result_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'tenant') NOT IN ('string', 'null') THEN 'its tenant must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'batch_id') NOT IN ('number', 'null') THEN 'its batch_id must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'after_batch') NOT IN ('number', 'null') THEN 'its after_batch must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'runs_on') NOT IN ('string', 'null') THEN 'its runs_on must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'rates') NOT IN ('array', 'null') THEN 'its rates must be a JSON array'
            WHEN (e.value ->> 'run_at') COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$' THEN 'its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z'
            WHEN (e.value ->> 'not_after') COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$' THEN 'its not_after must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z' END END INTO v_problem FROM jsonb_array_element(v_jobs, CAST(v_place - 1 AS integer)) AS e (value);
        RAISE EXCEPTION 'cannot enqueue `%`: job % of the list: %', class, v_place, v_problem
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO v_class FROM windlass_classes c
    WHERE c.class_name = windlass_enqueue_many_v2.class COLLATE "default";
    IF v_class.internal OR (v_class.internal IS NULL AND EXISTS (SELECT 1 FROM windlass_settings s WHERE s.name = 'strict_classes' AND s.value = 'on')) THEN
        PERFORM windlass_refuse_class(class, v_class.internal IS NULL);
    END IF;

    -- In order, whichever each job names.
    IF v_join_batches THEN
        PERFORM windlass_keep_batches(class, max(b.id) FILTER (WHERE b.joins), max(b.id) FILTER (WHERE NOT b.joins))
        FROM (SELECT CAST(e ->> 'batch_id' AS bigint) AS id, true AS joins FROM jsonb_array_elements(v_jobs) AS e
            UNION SELECT CAST(e ->> 'after_batch' AS bigint), false FROM jsonb_array_elements(v_jobs) AS e) AS b
        WHERE b.id IS NOT NULL GROUP BY b.id ORDER BY b.id;
    END IF;
    IF v_have_tenants AND NOT v_are_named THEN
        v_are_named := EXISTS (SELECT 1 FROM jsonb_array_elements(v_jobs) AS e, windlass_fair_queues f WHERE e ->> 'tenant' IS NOT NULL
            AND f.queue_name = coalesce(e ->> 'queue', v_class.queue_name, 'default') COLLATE "default" AND NOT f.is_ending);
    END IF;
    IF NOT v_are_named AND num_nonnulls(v_class.quota, v_class.rates) = 0 THEN
        WITH input AS MATERIALIZED (
            SELECT e.place, CAST(e.raw -> 'arguments' AS text) AS arguments, r.queue, r.priority, r.run_at, r.delay_seconds, r.unique_id, r.unique_scope, r.on_conflict, r.idempotency_key, r.concurrency_key, r.concurrency_group, r.concurrency_limit, r.concurrency_on_conflict, r.max_attempts, r.max_crashes, r.at_most_once, r.traceparent, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.tenant, r.batch_id, r.after_batch, r.runs_on, r.rates
            FROM ROWS FROM (json_array_elements(jobs), jsonb_array_elements(v_jobs)) WITH ORDINALITY AS e (raw, value, place), jsonb_to_record(e.value) AS r (queue text, priority integer, run_at timestamptz, delay_seconds double precision, unique_id text, unique_scope text, on_conflict text, idempotency_key text, concurrency_key text, concurrency_group text, concurrency_limit bigint, concurrency_on_conflict text, max_attempts bigint, max_crashes bigint, at_most_once boolean, traceparent text, tags text, meta text, version bigint, timeout_seconds double precision, backoff_seconds double precision, backoff_cap_seconds double precision, expires_in_seconds double precision, not_after timestamptz, retry_for_seconds double precision, keep_result_seconds double precision, tenant text, batch_id bigint, after_batch bigint, runs_on text, rates text)
        ), r AS MATERIALIZED (
            SELECT r.*, CASE
        WHEN octet_length(r.queue) NOT BETWEEN 1 AND 255 OR r.queue COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`'
        WHEN coalesce(octet_length(r.arguments), 0) + coalesce(octet_length(r.tags) + 9, 0) + coalesce(octet_length(r.meta) + 9, 0) > coalesce(v_class.max_arguments, 65536) THEN 'its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference'
        WHEN strpos(replace(r.arguments, E'\\\\', ''), E'\\u0000') > 0 THEN 'its arguments contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(r.arguments) > 2 * 120 AND windlass_is_too_deep(r.arguments, 120) THEN 'its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(r.arguments), E'\\ud') > 0 AND replace(r.arguments, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its arguments could not be read again: a text has half of a surrogate pair'
        WHEN r.arguments ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(r.arguments) THEN 'its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN num_nonnulls(r.run_at, r.delay_seconds, r.unique_id, r.unique_scope, r.on_conflict, r.idempotency_key, r.concurrency_key, r.concurrency_group, r.concurrency_limit, r.concurrency_on_conflict, r.max_attempts, r.max_crashes, r.at_most_once, r.traceparent, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.tenant, r.batch_id, r.after_batch, r.runs_on, r.rates) = 0 THEN NULL
        WHEN octet_length(r.idempotency_key) NOT BETWEEN 1 AND 255 THEN 'its idempotency_key must have 1 to 255 bytes and no NUL'
        WHEN octet_length(r.unique_id) NOT BETWEEN 1 AND 255 THEN 'its unique_id must have 1 to 255 bytes and no NUL'
        WHEN r.unique_scope NOT IN ('while_waiting', 'until_finished', 'until_result_expires') THEN 'its unique_scope must be one of while_waiting, until_finished, until_result_expires'
        WHEN r.on_conflict NOT IN ('existing', 'refuse', 'replace', 'run_again') THEN 'its on_conflict must be one of existing, refuse, replace, run_again'
        WHEN r.concurrency_on_conflict NOT IN ('block', 'discard', 'ordered') THEN 'its concurrency_on_conflict must be one of block, discard, ordered'
        WHEN r.concurrency_key = '' OR r.concurrency_group = '' OR octet_length(coalesce(r.concurrency_group, windlass_enqueue_many_v2.class) || '/' || r.concurrency_key) > 255 THEN 'its concurrency_key and concurrency_group must not be empty, have at most 255 bytes together, and no NUL'
        WHEN r.concurrency_key IS NULL AND (r.concurrency_limit IS NOT NULL OR r.concurrency_group IS NOT NULL OR r.concurrency_on_conflict IS NOT NULL) THEN 'its concurrency_key is missing, without which there is no limit'
        WHEN r.concurrency_limit < 1 THEN 'its concurrency_limit must be 1 or more; pause its queue to stop its jobs'
        WHEN r.concurrency_on_conflict = 'ordered' AND r.concurrency_limit <> 1 THEN 'its concurrency key is ordered, so its concurrency_limit must be 1'
        WHEN r.run_at IS NOT NULL AND r.delay_seconds IS NOT NULL THEN 'it has both run_at and delay_seconds; choose one'
        WHEN r.run_at AT TIME ZONE 'UTC' NOT BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31 23:59:59.999999' THEN 'its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z'
        WHEN NOT (r.delay_seconds >= 0 AND r.delay_seconds <= 31622400000) THEN 'its delay_seconds must be 0 or more, and at most 1000 years'
        WHEN r.max_attempts < 1 THEN 'its max_attempts must be an integer, 1 or more'
        WHEN r.max_crashes < 0 THEN 'its max_crashes must be an integer, 0 or more'
        WHEN r.version < 1 OR r.version > 4294967295 THEN 'its version must be an integer, 1 or more and at most 4294967295'
        WHEN coalesce(r.at_most_once, v_class.at_most_once) AND r.max_attempts > 1 THEN 'it has at-most-once delivery and more than one attempt; choose one'
        WHEN octet_length(r.traceparent) > 255 OR substr(r.traceparent, 4, 32) = '00000000000000000000000000000000' OR substr(r.traceparent, 37, 16) = '0000000000000000' OR r.traceparent COLLATE "C" !~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?)$' THEN 'its traceparent is not one of W3C Trace Context; pass the header as it is, `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits'
        WHEN strpos(replace(r.tags, E'\\\\', ''), E'\\u0000') > 0 THEN 'its tags contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(r.tags) > 2 * 119 AND windlass_is_too_deep(r.tags, 119) THEN 'its tags are nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(r.tags), E'\\ud') > 0 AND replace(r.tags, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its tags could not be read again: a text has half of a surrogate pair'
        WHEN r.tags ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(r.tags) THEN 'its tags could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN strpos(replace(r.meta, E'\\\\', ''), E'\\u0000') > 0 THEN 'its meta contains a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(r.meta) > 2 * 119 AND windlass_is_too_deep(r.meta, 119) THEN 'its meta is nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(r.meta), E'\\ud') > 0 AND replace(r.meta, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its meta could not be read again: a text has half of a surrogate pair'
        WHEN r.meta ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(r.meta) THEN 'its meta could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN NOT (r.timeout_seconds >= 0 AND r.timeout_seconds <= 31622400000) THEN 'its timeout_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (r.keep_result_seconds >= 0 AND r.keep_result_seconds <= 31622400000) THEN 'its keep_result_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (r.backoff_seconds >= 0 AND r.backoff_seconds <= 31622400000) THEN 'its backoff_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (r.backoff_cap_seconds >= 0 AND r.backoff_cap_seconds <= 31622400000) THEN 'its backoff_cap_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (r.expires_in_seconds > 0 AND r.expires_in_seconds <= 31622400000) THEN 'its expires_in_seconds must be above 0, and at most 1000 years'
        WHEN NOT (r.retry_for_seconds > 0 AND r.retry_for_seconds <= 31622400000) THEN 'its retry_for_seconds must be above 0, and at most 1000 years'
        WHEN r.backoff_cap_seconds IS NOT NULL AND r.backoff_seconds IS NULL THEN 'its backoff_seconds is missing, the first delay, without which there is no cap'
        WHEN r.not_after IS NOT NULL AND r.expires_in_seconds IS NOT NULL THEN 'it has both not_after and expires_in_seconds; choose one'
        WHEN r.not_after AT TIME ZONE 'UTC' NOT BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31 23:59:59.999999' THEN 'its not_after must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z'
        WHEN r.not_after <= r.run_at THEN 'it would expire before it is due: its not_after is not behind its run_at'
        WHEN octet_length(r.tenant) NOT BETWEEN 1 AND 255 OR (r.tenant) COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'its tenant must have 1 to 255 bytes and no control character'
        WHEN r.runs_on NOT IN ('success', 'failure', 'finish') THEN 'its runs_on must be one of success, failure, finish'
        WHEN r.runs_on IS NOT NULL AND r.after_batch IS NULL THEN 'its after_batch is missing, whose outcome its runs_on names'
        WHEN r.after_batch IS NOT NULL AND r.unique_id IS NOT NULL THEN 'it waits for a batch, and cannot have a unique_id'
        WHEN r.after_batch = r.batch_id THEN 'it waits for its own batch, which could not end'
        WHEN strpos(replace(r.rates, E'\\\\', ''), E'\\u0000') > 0 THEN 'its rates contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(r.rates) > 2 * 120 AND windlass_is_too_deep(r.rates, 120) THEN 'its rates are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(r.rates), E'\\ud') > 0 AND replace(r.rates, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its rates could not be read again: a text has half of a surrogate pair'
        WHEN r.rates ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(r.rates) THEN 'its rates could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text' END AS problem FROM input AS r
        ), job AS (
            INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, created_at, updated_at) SELECT coalesce(r.queue, v_class.queue_name, 'default'), windlass_enqueue_many_v2.class, coalesce(r.arguments, 'null'), coalesce(r.priority, v_class.priority, 0), coalesce(CAST(CASE WHEN r.max_attempts IS NOT NULL THEN least(r.max_attempts, 2147483647) END AS integer), CASE WHEN NOT coalesce(r.at_most_once, v_class.at_most_once, false) THEN v_class.max_attempts END), coalesce(CAST(CASE WHEN r.max_crashes IS NOT NULL THEN least(r.max_crashes, 2147483647) END AS integer), v_class.max_crashes), coalesce(r.at_most_once, v_class.at_most_once, CAST(CAST(v_class.policy AS json) -> 'delivery' AS text) IS NOT NULL, false), CASE WHEN num_nonnulls(r.unique_scope, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.at_most_once) = 0 THEN v_class.policy ELSE nullif('{' || substr(coalesce(',"delivery":' || CASE WHEN r.at_most_once IS NULL THEN CAST(CAST(v_class.policy AS json) -> 'delivery' AS text) END, '') || coalesce(',"backoff":' || coalesce(CASE WHEN r.backoff_cap_seconds IS NULL THEN '{"fixed":' || CAST((CAST(CASE WHEN r.backoff_seconds > 0 AND r.backoff_seconds < 0.000001 THEN 1 ELSE round(r.backoff_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}' ELSE '{"exponential":{"first":' || CAST((CAST(CASE WHEN r.backoff_seconds > 0 AND r.backoff_seconds < 0.000001 THEN 1 ELSE round(r.backoff_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || ',"cap":' || CAST((CAST(CASE WHEN r.backoff_cap_seconds > 0 AND r.backoff_cap_seconds < 0.000001 THEN 1 ELSE round(r.backoff_cap_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}}' END, CAST(CAST(v_class.policy AS json) -> 'backoff' AS text)), '') || coalesce(',"on_failure":' || CAST(CAST(v_class.policy AS json) -> 'on_failure' AS text), '') || coalesce(',"keep_finished":' || CAST(CAST(v_class.policy AS json) -> 'keep_finished' AS text), '') || coalesce(',"keep_result":' || coalesce(CAST((CAST(CASE WHEN r.keep_result_seconds > 0 AND r.keep_result_seconds < 0.000001 THEN 1 ELSE round(r.keep_result_seconds * 1000000) END AS bigint) + 999) / 1000 AS text), CAST(CAST(v_class.policy AS json) -> 'keep_result' AS text)), '') || coalesce(',"unique_scope":' || coalesce('"' || r.unique_scope || '"', CAST(CAST(v_class.policy AS json) -> 'unique_scope' AS text)), '') || coalesce(',"timeout":' || coalesce(CAST((CAST(CASE WHEN r.timeout_seconds > 0 AND r.timeout_seconds < 0.000001 THEN 1 ELSE round(r.timeout_seconds * 1000000) END AS bigint) + 999) / 1000 AS text), CAST(CAST(v_class.policy AS json) -> 'timeout' AS text)), '') || coalesce(',"timeout_grace":' || CAST(CAST(v_class.policy AS json) -> 'timeout_grace' AS text), '') || coalesce(',"on_timeout":' || CAST(CAST(v_class.policy AS json) -> 'on_timeout' AS text), '') || coalesce(',"expiry":' || coalesce(coalesce('{"in":' || CAST((CAST(CASE WHEN r.expires_in_seconds > 0 AND r.expires_in_seconds < 0.000001 THEN 1 ELSE round(r.expires_in_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}', '{"at":' || '"' || regexp_replace(to_char(r.not_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '([.]000000|000)$', '') || 'Z' || '"' || '}'), CAST(CAST(v_class.policy AS json) -> 'expiry' AS text)), '') || coalesce(',"retry_limit":' || coalesce('{"for":' || CAST((CAST(CASE WHEN r.retry_for_seconds > 0 AND r.retry_for_seconds < 0.000001 THEN 1 ELSE round(r.retry_for_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}', CAST(CAST(v_class.policy AS json) -> 'retry_limit' AS text)), '') || coalesce(',"propagation_style":' || CAST(CAST(v_class.policy AS json) -> 'propagation_style' AS text), '') || coalesce(',"extras":' || CAST(CAST(v_class.policy AS json) -> 'extras' AS text), ''), 2) || '}', '{}') END, r.traceparent, r.tenant, r.batch_id, NULL, coalesce(CAST(r.run_at AT TIME ZONE 'UTC' AS timestamp), (statement_timestamp() AT TIME ZONE 'UTC' + CAST(round(r.delay_seconds * 1000000) AS bigint) * interval '1 microsecond')), (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC') FROM r WHERE r.problem IS NULL ORDER BY r.place
            RETURNING id, queue_name, priority, class_name, at_most_once, max_crashes, scheduled_at, policy, batch_id
        ), member AS (
            INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at)
            SELECT id, batch_id, (statement_timestamp() AT TIME ZONE 'UTC') FROM job WHERE batch_id IS NOT NULL RETURNING batch_id
        ), added AS (
            INSERT INTO windlass_wanted_keys (kind, target_id, amount) SELECT 'batch', batch_id, count(*) FROM member GROUP BY batch_id
        ), expiring AS (
            INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, least(coalesce(CAST(CAST(expiry ->> 'at' AS timestamptz) AT TIME ZONE 'UTC' AS timestamp), greatest(coalesce(j.scheduled_at, (statement_timestamp() AT TIME ZONE 'UTC')), (statement_timestamp() AT TIME ZONE 'UTC')) + CAST(least(CAST(expiry ->> 'in' AS numeric), 31622400000000) AS bigint) * interval '1 millisecond'), timestamp '9999-12-30 00:00:00.000000')
            FROM (SELECT job.id, job.scheduled_at, CAST(job.policy AS json) -> 'expiry' AS expiry FROM job
                WHERE job.policy LIKE '%"expiry":%') AS j, (SELECT 1) AS p WHERE j.expiry IS NOT NULL
        ), ready AS (
            INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
            SELECT id, queue_name, priority, class_name, at_most_once OR coalesce(max_crashes = 0, false), (statement_timestamp() AT TIME ZONE 'UTC') FROM job
            WHERE scheduled_at IS NULL OR scheduled_at <= (statement_timestamp() AT TIME ZONE 'UTC') RETURNING 1
        ), later AS (
            INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
            SELECT id, queue_name, priority, scheduled_at, (statement_timestamp() AT TIME ZONE 'UTC') FROM job WHERE scheduled_at > (statement_timestamp() AT TIME ZONE 'UTC')
        ), woken AS (
            SELECT CASE WHEN EXISTS (SELECT 1 FROM ready) THEN (SELECT count(pg_notify(w.channel, '')) FROM (SELECT coalesce(channel, 'windlass') AS channel, row_number() OVER (PARTITION BY left(channel, 25) ORDER BY last_heartbeat_at < (statement_timestamp() AT TIME ZONE 'UTC') - interval '30 seconds', random()) AS place FROM solid_queue_processes WHERE listening AND true) AS w WHERE w.place <= (SELECT count(*) FROM ready) + 1) END AS workers
        ), bad AS (
            SELECT r.place, r.problem FROM r WHERE r.problem IS NOT NULL ORDER BY r.place LIMIT 1
        ) SELECT (SELECT array_agg(job.id ORDER BY job.id) FROM job), bad.place, bad.problem INTO v_ids, v_place, v_problem
        FROM woken LEFT JOIN bad ON true;
        IF v_problem IS NOT NULL THEN
            RAISE EXCEPTION 'cannot enqueue `%`: job % of the list: %', class, v_place, v_problem
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN QUERY SELECT unnest(v_ids);
        RETURN;
    END IF;
    -- Ids follow the list.
    SELECT array_agg(nextval(CAST(pg_get_serial_sequence('solid_queue_jobs', 'id') AS regclass))) INTO v_ids
        FROM generate_series(1, jsonb_array_length(v_jobs));
    -- Of two with one name, the first decides. Else unique ids are locked in their order, and then keys in theirs, so that
    -- no two lists wait for each other.
    SELECT count(e ->> 'unique_id') = count(DISTINCT e ->> 'unique_id')
        AND count(e ->> 'idempotency_key') = count(DISTINCT e ->> 'idempotency_key')
        INTO v_are_distinct FROM jsonb_array_elements(v_jobs) AS e;
    IF v_are_distinct THEN
        INSERT INTO windlass_unique_jobs (unique_id, job_id, scope)
            SELECT e.value ->> 'unique_id', v_ids[e.place], coalesce(e.value ->> 'unique_scope', 'until_finished')
            FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (value, place)
            WHERE octet_length(e.value ->> 'unique_id') BETWEEN 1 AND 255
            ORDER BY (e.value ->> 'unique_id') COLLATE "C" ON CONFLICT (unique_id) DO NOTHING;
        PERFORM 1 FROM windlass_unique_jobs u WHERE u.unique_id = ANY (ARRAY(SELECT e ->> 'unique_id' FROM jsonb_array_elements(v_jobs) AS e))
            ORDER BY u.unique_id COLLATE "C" FOR UPDATE;
    END IF;
    FOR r IN
        SELECT e.place, CAST(e.raw -> 'arguments' AS text) AS arguments, r.*
        FROM ROWS FROM (json_array_elements(jobs), jsonb_array_elements(v_jobs)) WITH ORDINALITY AS e (raw, value, place), jsonb_to_record(e.value) AS r (queue text, priority integer, run_at timestamptz, delay_seconds double precision, unique_id text, unique_scope text, on_conflict text, idempotency_key text, concurrency_key text, concurrency_group text, concurrency_limit bigint, concurrency_on_conflict text, max_attempts bigint, max_crashes bigint, at_most_once boolean, traceparent text, tags text, meta text, version bigint, timeout_seconds double precision, backoff_seconds double precision, backoff_cap_seconds double precision, expires_in_seconds double precision, not_after timestamptz, retry_for_seconds double precision, keep_result_seconds double precision, tenant text, batch_id bigint, after_batch bigint, runs_on text, rates text)
        ORDER BY CASE WHEN v_are_distinct THEN r.idempotency_key END COLLATE "C" NULLS FIRST, e.place
    LOOP
        v_done := windlass_enqueue_job_v2(v_ids[r.place], class COLLATE "default", r.arguments, r.queue, r.priority, r.run_at, r.delay_seconds, r.unique_id, r.unique_scope, r.on_conflict, r.idempotency_key, r.concurrency_key, r.concurrency_group, r.concurrency_limit, r.concurrency_on_conflict, r.max_attempts, r.max_crashes, r.at_most_once, r.traceparent, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.tenant, r.batch_id, r.after_batch, r.runs_on, r.rates);
        v_ids[r.place] := v_done.id;
    END LOOP;
    RETURN QUERY SELECT unnest(v_ids);
END;
$$;

-- Enqueues jobs of one class that differ in their arguments alone, all or none, and returns their ids, in order: faster than a
-- list. The options are a job of a list without arguments, and count for each of them.
CREATE OR REPLACE FUNCTION windlass_enqueue_each_v2(class text, arguments text[], options json DEFAULT NULL) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    p_class text := class COLLATE "default";
    p_arguments text[] := arguments;
    v_class windlass_classes := (SELECT c FROM windlass_classes c WHERE c.class_name = class COLLATE "default");
    v_now timestamp := (statement_timestamp() AT TIME ZONE 'UTC');
    v_options jsonb;
    v_texts text;
    v_place bigint;
    v_problem text;
    v_text text;
    v_queue text;
    v_priority integer;
    v_policy text;
    v_once boolean;
    v_attempts integer;
    v_crashes integer;
    v_at timestamp;
    v_is_shared boolean := false;
    v_ids bigint[];
    r record;
BEGIN
    v_problem := CASE
        WHEN p_class IS NULL THEN 'its class is missing'
        WHEN octet_length(p_class) NOT BETWEEN 1 AND 255 OR p_class COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`' END;
    IF v_problem IS NULL AND (p_arguments IS NULL OR array_position(p_arguments, NULL) IS NOT NULL) THEN
        v_problem := 'its arguments are NULL, or one of them is';
    ELSIF v_problem IS NULL AND (SELECT max(octet_length(a)) FROM unnest(p_arguments) AS a) > 2 * 120 THEN
        SELECT min(a.place) INTO v_place FROM unnest(p_arguments) WITH ORDINALITY AS a (text, place) WHERE windlass_is_too_deep(a.text, 120);
        v_problem := 'job ' || v_place || ' of the list: its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference';
    END IF;
    IF v_problem IS NULL THEN
        BEGIN
            v_options := coalesce(options, '{}');
            SELECT CASE WHEN jsonb_typeof(e.value) <> 'object' THEN 'its options are not an object'
                WHEN CASE WHEN jsonb_typeof(e.value) <> 'object' THEN true WHEN e.value - 'arguments' = jsonb '{}' THEN false ELSE jsonb_typeof(e.value -> 'queue') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'priority') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'run_at') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'delay_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'max_attempts') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'traceparent') NOT IN ('string', 'null') OR (e.value ->> 'run_at') COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$' OR (e.value ->> 'not_after') COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$' OR (e.value - ARRAY['arguments', 'queue', 'priority', 'run_at', 'delay_seconds', 'max_attempts', 'traceparent'] <> jsonb '{}' AND (e.value - ARRAY['arguments', 'queue', 'priority', 'run_at', 'delay_seconds', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_limit', 'concurrency_on_conflict', 'max_attempts', 'max_crashes', 'at_most_once', 'traceparent', 'tags', 'meta', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'not_after', 'retry_for_seconds', 'keep_result_seconds', 'tenant', 'batch_id', 'after_batch', 'runs_on', 'rates'] <> jsonb '{}' OR jsonb_typeof(e.value -> 'unique_id') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'unique_scope') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'on_conflict') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'idempotency_key') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'concurrency_key') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'concurrency_group') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'concurrency_limit') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'concurrency_on_conflict') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'max_crashes') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'at_most_once') NOT IN ('boolean', 'null') OR jsonb_typeof(e.value -> 'tags') NOT IN ('array', 'null') OR jsonb_typeof(e.value -> 'meta') NOT IN ('object', 'null') OR jsonb_typeof(e.value -> 'version') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'timeout_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'backoff_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'backoff_cap_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'expires_in_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'not_after') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'retry_for_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'keep_result_seconds') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'tenant') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'batch_id') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'after_batch') NOT IN ('number', 'null') OR jsonb_typeof(e.value -> 'runs_on') NOT IN ('string', 'null') OR jsonb_typeof(e.value -> 'rates') NOT IN ('array', 'null'))) END OR e.value ? 'arguments' THEN coalesce(CASE
            WHEN jsonb_typeof(e.value -> 'queue') NOT IN ('string', 'null') THEN 'its queue must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'priority') NOT IN ('number', 'null') THEN 'its priority must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'run_at') NOT IN ('string', 'null') THEN 'its run_at must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'delay_seconds') NOT IN ('number', 'null') THEN 'its delay_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'unique_id') NOT IN ('string', 'null') THEN 'its unique_id must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'unique_scope') NOT IN ('string', 'null') THEN 'its unique_scope must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'on_conflict') NOT IN ('string', 'null') THEN 'its on_conflict must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'idempotency_key') NOT IN ('string', 'null') THEN 'its idempotency_key must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'concurrency_key') NOT IN ('string', 'null') THEN 'its concurrency_key must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'concurrency_group') NOT IN ('string', 'null') THEN 'its concurrency_group must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'concurrency_limit') NOT IN ('number', 'null') THEN 'its concurrency_limit must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'concurrency_on_conflict') NOT IN ('string', 'null') THEN 'its concurrency_on_conflict must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'max_attempts') NOT IN ('number', 'null') THEN 'its max_attempts must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'max_crashes') NOT IN ('number', 'null') THEN 'its max_crashes must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'at_most_once') NOT IN ('boolean', 'null') THEN 'its at_most_once must be true or false'
            WHEN jsonb_typeof(e.value -> 'traceparent') NOT IN ('string', 'null') THEN 'its traceparent must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'tags') NOT IN ('array', 'null') THEN 'its tags must be a JSON array'
            WHEN jsonb_typeof(e.value -> 'meta') NOT IN ('object', 'null') THEN 'its meta must be a JSON object'
            WHEN jsonb_typeof(e.value -> 'version') NOT IN ('number', 'null') THEN 'its version must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'timeout_seconds') NOT IN ('number', 'null') THEN 'its timeout_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'backoff_seconds') NOT IN ('number', 'null') THEN 'its backoff_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'backoff_cap_seconds') NOT IN ('number', 'null') THEN 'its backoff_cap_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'expires_in_seconds') NOT IN ('number', 'null') THEN 'its expires_in_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'not_after') NOT IN ('string', 'null') THEN 'its not_after must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'retry_for_seconds') NOT IN ('number', 'null') THEN 'its retry_for_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'keep_result_seconds') NOT IN ('number', 'null') THEN 'its keep_result_seconds must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'tenant') NOT IN ('string', 'null') THEN 'its tenant must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'batch_id') NOT IN ('number', 'null') THEN 'its batch_id must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'after_batch') NOT IN ('number', 'null') THEN 'its after_batch must be a JSON number'
            WHEN jsonb_typeof(e.value -> 'runs_on') NOT IN ('string', 'null') THEN 'its runs_on must be a JSON string'
            WHEN jsonb_typeof(e.value -> 'rates') NOT IN ('array', 'null') THEN 'its rates must be a JSON array'
            WHEN (e.value ->> 'run_at') COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$' THEN 'its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z'
            WHEN (e.value ->> 'not_after') COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$' THEN 'its not_after must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z' END,
                    'its options have no key ' || (SELECT min(key) FROM jsonb_object_keys(e.value - ARRAY['queue', 'priority', 'run_at', 'delay_seconds', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_limit', 'concurrency_on_conflict', 'max_attempts', 'max_crashes', 'at_most_once', 'traceparent', 'tags', 'meta', 'version', 'timeout_seconds', 'backoff_seconds', 'backoff_cap_seconds', 'expires_in_seconds', 'not_after', 'retry_for_seconds', 'keep_result_seconds', 'tenant', 'batch_id', 'after_batch', 'runs_on', 'rates']) AS key))
                WHEN e.value ?| ARRAY['unique_id', 'idempotency_key'] AND cardinality(p_arguments) > 1
                THEN 'its options name one job: enqueue it alone, or use a list' END
                INTO v_problem FROM (SELECT v_options AS value) AS e;
            PERFORM count(CAST(a AS json)) FROM unnest(p_arguments) AS a;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character OR numeric_value_out_of_range THEN
            v_problem := 'its arguments or options are not JSON';
        END;
    END IF;
    IF v_problem IS NULL THEN
        SELECT r.* INTO r FROM (SELECT v_options AS value) AS e, jsonb_to_record(e.value) AS r (queue text, priority integer, run_at timestamptz, delay_seconds double precision, unique_id text, unique_scope text, on_conflict text, idempotency_key text, concurrency_key text, concurrency_group text, concurrency_limit bigint, concurrency_on_conflict text, max_attempts bigint, max_crashes bigint, at_most_once boolean, traceparent text, tags text, meta text, version bigint, timeout_seconds double precision, backoff_seconds double precision, backoff_cap_seconds double precision, expires_in_seconds double precision, not_after timestamptz, retry_for_seconds double precision, keep_result_seconds double precision, tenant text, batch_id bigint, after_batch bigint, runs_on text, rates text);
        v_problem := CASE
        WHEN octet_length(r.queue) NOT BETWEEN 1 AND 255 OR r.queue COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`'
        WHEN coalesce(octet_length(CAST(NULL AS text)), 0) + coalesce(octet_length(r.tags) + 9, 0) + coalesce(octet_length(r.meta) + 9, 0) > coalesce(v_class.max_arguments, 65536) THEN 'its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference'
        WHEN strpos(replace(CAST(NULL AS text), E'\\\\', ''), E'\\u0000') > 0 THEN 'its arguments contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(CAST(NULL AS text)) > 2 * 120 AND windlass_is_too_deep(CAST(NULL AS text), 120) THEN 'its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(CAST(NULL AS text)), E'\\ud') > 0 AND replace(CAST(NULL AS text), E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its arguments could not be read again: a text has half of a surrogate pair'
        WHEN CAST(NULL AS text) ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(CAST(NULL AS text)) THEN 'its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN num_nonnulls(r.run_at, r.delay_seconds, r.unique_id, r.unique_scope, r.on_conflict, r.idempotency_key, r.concurrency_key, r.concurrency_group, r.concurrency_limit, r.concurrency_on_conflict, r.max_attempts, r.max_crashes, r.at_most_once, r.traceparent, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.tenant, r.batch_id, r.after_batch, r.runs_on, r.rates) = 0 THEN NULL
        WHEN octet_length(r.idempotency_key) NOT BETWEEN 1 AND 255 THEN 'its idempotency_key must have 1 to 255 bytes and no NUL'
        WHEN octet_length(r.unique_id) NOT BETWEEN 1 AND 255 THEN 'its unique_id must have 1 to 255 bytes and no NUL'
        WHEN r.unique_scope NOT IN ('while_waiting', 'until_finished', 'until_result_expires') THEN 'its unique_scope must be one of while_waiting, until_finished, until_result_expires'
        WHEN r.on_conflict NOT IN ('existing', 'refuse', 'replace', 'run_again') THEN 'its on_conflict must be one of existing, refuse, replace, run_again'
        WHEN r.concurrency_on_conflict NOT IN ('block', 'discard', 'ordered') THEN 'its concurrency_on_conflict must be one of block, discard, ordered'
        WHEN r.concurrency_key = '' OR r.concurrency_group = '' OR octet_length(coalesce(r.concurrency_group, p_class) || '/' || r.concurrency_key) > 255 THEN 'its concurrency_key and concurrency_group must not be empty, have at most 255 bytes together, and no NUL'
        WHEN r.concurrency_key IS NULL AND (r.concurrency_limit IS NOT NULL OR r.concurrency_group IS NOT NULL OR r.concurrency_on_conflict IS NOT NULL) THEN 'its concurrency_key is missing, without which there is no limit'
        WHEN r.concurrency_limit < 1 THEN 'its concurrency_limit must be 1 or more; pause its queue to stop its jobs'
        WHEN r.concurrency_on_conflict = 'ordered' AND r.concurrency_limit <> 1 THEN 'its concurrency key is ordered, so its concurrency_limit must be 1'
        WHEN r.run_at IS NOT NULL AND r.delay_seconds IS NOT NULL THEN 'it has both run_at and delay_seconds; choose one'
        WHEN r.run_at AT TIME ZONE 'UTC' NOT BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31 23:59:59.999999' THEN 'its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z'
        WHEN NOT (r.delay_seconds >= 0 AND r.delay_seconds <= 31622400000) THEN 'its delay_seconds must be 0 or more, and at most 1000 years'
        WHEN r.max_attempts < 1 THEN 'its max_attempts must be an integer, 1 or more'
        WHEN r.max_crashes < 0 THEN 'its max_crashes must be an integer, 0 or more'
        WHEN r.version < 1 OR r.version > 4294967295 THEN 'its version must be an integer, 1 or more and at most 4294967295'
        WHEN coalesce(r.at_most_once, v_class.at_most_once) AND r.max_attempts > 1 THEN 'it has at-most-once delivery and more than one attempt; choose one'
        WHEN octet_length(r.traceparent) > 255 OR substr(r.traceparent, 4, 32) = '00000000000000000000000000000000' OR substr(r.traceparent, 37, 16) = '0000000000000000' OR r.traceparent COLLATE "C" !~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|(?!00|ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?)$' THEN 'its traceparent is not one of W3C Trace Context; pass the header as it is, `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits'
        WHEN strpos(replace(r.tags, E'\\\\', ''), E'\\u0000') > 0 THEN 'its tags contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(r.tags) > 2 * 119 AND windlass_is_too_deep(r.tags, 119) THEN 'its tags are nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(r.tags), E'\\ud') > 0 AND replace(r.tags, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its tags could not be read again: a text has half of a surrogate pair'
        WHEN r.tags ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(r.tags) THEN 'its tags could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN strpos(replace(r.meta, E'\\\\', ''), E'\\u0000') > 0 THEN 'its meta contains a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(r.meta) > 2 * 119 AND windlass_is_too_deep(r.meta, 119) THEN 'its meta is nested deeper than 119 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(r.meta), E'\\ud') > 0 AND replace(r.meta, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its meta could not be read again: a text has half of a surrogate pair'
        WHEN r.meta ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(r.meta) THEN 'its meta could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text'
        WHEN NOT (r.timeout_seconds >= 0 AND r.timeout_seconds <= 31622400000) THEN 'its timeout_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (r.keep_result_seconds >= 0 AND r.keep_result_seconds <= 31622400000) THEN 'its keep_result_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (r.backoff_seconds >= 0 AND r.backoff_seconds <= 31622400000) THEN 'its backoff_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (r.backoff_cap_seconds >= 0 AND r.backoff_cap_seconds <= 31622400000) THEN 'its backoff_cap_seconds must be 0 or more, and at most 1000 years'
        WHEN NOT (r.expires_in_seconds > 0 AND r.expires_in_seconds <= 31622400000) THEN 'its expires_in_seconds must be above 0, and at most 1000 years'
        WHEN NOT (r.retry_for_seconds > 0 AND r.retry_for_seconds <= 31622400000) THEN 'its retry_for_seconds must be above 0, and at most 1000 years'
        WHEN r.backoff_cap_seconds IS NOT NULL AND r.backoff_seconds IS NULL THEN 'its backoff_seconds is missing, the first delay, without which there is no cap'
        WHEN r.not_after IS NOT NULL AND r.expires_in_seconds IS NOT NULL THEN 'it has both not_after and expires_in_seconds; choose one'
        WHEN r.not_after AT TIME ZONE 'UTC' NOT BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31 23:59:59.999999' THEN 'its not_after must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z'
        WHEN r.not_after <= r.run_at THEN 'it would expire before it is due: its not_after is not behind its run_at'
        WHEN octet_length(r.tenant) NOT BETWEEN 1 AND 255 OR (r.tenant) COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]' THEN 'its tenant must have 1 to 255 bytes and no control character'
        WHEN r.runs_on NOT IN ('success', 'failure', 'finish') THEN 'its runs_on must be one of success, failure, finish'
        WHEN r.runs_on IS NOT NULL AND r.after_batch IS NULL THEN 'its after_batch is missing, whose outcome its runs_on names'
        WHEN r.after_batch IS NOT NULL AND r.unique_id IS NOT NULL THEN 'it waits for a batch, and cannot have a unique_id'
        WHEN r.after_batch = r.batch_id THEN 'it waits for its own batch, which could not end'
        WHEN strpos(replace(r.rates, E'\\\\', ''), E'\\u0000') > 0 THEN 'its rates contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(r.rates) > 2 * 120 AND windlass_is_too_deep(r.rates, 120) THEN 'its rates are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(r.rates), E'\\ud') > 0 AND replace(r.rates, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its rates could not be read again: a text has half of a surrogate pair'
        WHEN r.rates ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(r.rates) THEN 'its rates could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text' END;
        v_texts := array_to_string(p_arguments, E'\n');
        -- Most need no look at each.
        IF v_problem IS NULL AND ((SELECT max(octet_length(a)) FROM unnest(p_arguments) AS a) > least(2 * 120, coalesce(v_class.max_arguments, 2 * 120))
            OR strpos(v_texts, E'\\u') > 0 OR v_texts ~ '[0-9]{19}|[eE][+]?[0-9]{3}') THEN
            SELECT e.place, e.problem INTO v_place, v_problem FROM (SELECT a.place, CASE
        WHEN coalesce(octet_length(a.arguments), 0) + coalesce(octet_length(CAST(NULL AS text)) + 9, 0) + coalesce(octet_length(CAST(NULL AS text)) + 9, 0) > coalesce(v_class.max_arguments, 65536) THEN 'its arguments must be JSON text of at most 65536 bytes, or as many as its class takes, with the tags and the metadata; store the data elsewhere and pass a reference'
        WHEN strpos(replace(a.arguments, E'\\\\', ''), E'\\u0000') > 0 THEN 'its arguments contain a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(a.arguments) > 2 * 120 AND windlass_is_too_deep(a.arguments, 120) THEN 'its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(a.arguments), E'\\ud') > 0 AND replace(a.arguments, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its arguments could not be read again: a text has half of a surrogate pair'
        WHEN a.arguments ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(a.arguments) THEN 'its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text' END AS problem
                FROM unnest(p_arguments) WITH ORDINALITY AS a (arguments, place)) AS e WHERE e.problem IS NOT NULL ORDER BY e.place LIMIT 1;
            v_problem := 'job ' || v_place || ' of the list: ' || v_problem;
        END IF;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(coalesce(p_class, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_class.internal OR (v_class.internal IS NULL AND EXISTS (SELECT 1 FROM windlass_settings s WHERE s.name = 'strict_classes' AND s.value = 'on')) THEN
        PERFORM windlass_refuse_class(p_class, v_class.internal IS NULL);
    END IF;
    v_queue := coalesce(r.queue, v_class.queue_name, 'default');
    IF r.tenant IS NOT NULL THEN
        v_is_shared := EXISTS (SELECT 1 FROM windlass_fair_queues f WHERE f.queue_name = v_queue COLLATE "default" AND NOT f.is_ending);
    END IF;
    IF v_is_shared OR num_nonnulls(v_class.quota, v_class.rates) > 0
        OR v_options ?| ARRAY['unique_id', 'idempotency_key', 'concurrency_key', 'tags', 'meta', 'version', 'after_batch', 'rates'] THEN
        FOREACH v_text IN ARRAY p_arguments LOOP
            RETURN QUERY SELECT j.id FROM windlass_enqueue_any_v2(NULL, p_class, v_text, r.queue, r.priority, r.run_at, r.delay_seconds, r.unique_id, r.unique_scope, r.on_conflict, r.idempotency_key, r.concurrency_key, r.concurrency_group, r.concurrency_limit, r.concurrency_on_conflict, r.max_attempts, r.max_crashes, r.at_most_once, r.traceparent, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.tenant, r.batch_id, r.after_batch, r.runs_on, r.rates) AS j;
        END LOOP;
        RETURN;
    END IF;
    IF r.batch_id IS NOT NULL THEN
        PERFORM windlass_keep_batches(p_class, r.batch_id, NULL);
    END IF;
    v_priority := coalesce(r.priority, v_class.priority, 0);
    v_policy := CASE WHEN num_nonnulls(r.unique_scope, r.tags, r.meta, r.version, r.timeout_seconds, r.backoff_seconds, r.backoff_cap_seconds, r.expires_in_seconds, r.not_after, r.retry_for_seconds, r.keep_result_seconds, r.at_most_once) = 0 THEN v_class.policy ELSE nullif('{' || substr(coalesce(',"delivery":' || CASE WHEN r.at_most_once IS NULL THEN CAST(CAST(v_class.policy AS json) -> 'delivery' AS text) END, '') || coalesce(',"backoff":' || coalesce(CASE WHEN r.backoff_cap_seconds IS NULL THEN '{"fixed":' || CAST((CAST(CASE WHEN r.backoff_seconds > 0 AND r.backoff_seconds < 0.000001 THEN 1 ELSE round(r.backoff_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}' ELSE '{"exponential":{"first":' || CAST((CAST(CASE WHEN r.backoff_seconds > 0 AND r.backoff_seconds < 0.000001 THEN 1 ELSE round(r.backoff_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || ',"cap":' || CAST((CAST(CASE WHEN r.backoff_cap_seconds > 0 AND r.backoff_cap_seconds < 0.000001 THEN 1 ELSE round(r.backoff_cap_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}}' END, CAST(CAST(v_class.policy AS json) -> 'backoff' AS text)), '') || coalesce(',"on_failure":' || CAST(CAST(v_class.policy AS json) -> 'on_failure' AS text), '') || coalesce(',"keep_finished":' || CAST(CAST(v_class.policy AS json) -> 'keep_finished' AS text), '') || coalesce(',"keep_result":' || coalesce(CAST((CAST(CASE WHEN r.keep_result_seconds > 0 AND r.keep_result_seconds < 0.000001 THEN 1 ELSE round(r.keep_result_seconds * 1000000) END AS bigint) + 999) / 1000 AS text), CAST(CAST(v_class.policy AS json) -> 'keep_result' AS text)), '') || coalesce(',"unique_scope":' || coalesce('"' || r.unique_scope || '"', CAST(CAST(v_class.policy AS json) -> 'unique_scope' AS text)), '') || coalesce(',"timeout":' || coalesce(CAST((CAST(CASE WHEN r.timeout_seconds > 0 AND r.timeout_seconds < 0.000001 THEN 1 ELSE round(r.timeout_seconds * 1000000) END AS bigint) + 999) / 1000 AS text), CAST(CAST(v_class.policy AS json) -> 'timeout' AS text)), '') || coalesce(',"timeout_grace":' || CAST(CAST(v_class.policy AS json) -> 'timeout_grace' AS text), '') || coalesce(',"on_timeout":' || CAST(CAST(v_class.policy AS json) -> 'on_timeout' AS text), '') || coalesce(',"expiry":' || coalesce(coalesce('{"in":' || CAST((CAST(CASE WHEN r.expires_in_seconds > 0 AND r.expires_in_seconds < 0.000001 THEN 1 ELSE round(r.expires_in_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}', '{"at":' || '"' || regexp_replace(to_char(r.not_after AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), '([.]000000|000)$', '') || 'Z' || '"' || '}'), CAST(CAST(v_class.policy AS json) -> 'expiry' AS text)), '') || coalesce(',"retry_limit":' || coalesce('{"for":' || CAST((CAST(CASE WHEN r.retry_for_seconds > 0 AND r.retry_for_seconds < 0.000001 THEN 1 ELSE round(r.retry_for_seconds * 1000000) END AS bigint) + 999) / 1000 AS text) || '}', CAST(CAST(v_class.policy AS json) -> 'retry_limit' AS text)), '') || coalesce(',"propagation_style":' || CAST(CAST(v_class.policy AS json) -> 'propagation_style' AS text), '') || coalesce(',"extras":' || CAST(CAST(v_class.policy AS json) -> 'extras' AS text), ''), 2) || '}', '{}') END;
    v_once := coalesce(r.at_most_once, v_class.at_most_once, CAST(CAST(v_class.policy AS json) -> 'delivery' AS text) IS NOT NULL, false);
    v_attempts := coalesce(CAST(CASE WHEN r.max_attempts IS NOT NULL THEN least(r.max_attempts, 2147483647) END AS integer), CASE WHEN NOT coalesce(r.at_most_once, v_class.at_most_once, false) THEN v_class.max_attempts END);
    v_crashes := coalesce(CAST(CASE WHEN r.max_crashes IS NOT NULL THEN least(r.max_crashes, 2147483647) END AS integer), v_class.max_crashes);
    v_at := coalesce(r.run_at AT TIME ZONE 'UTC', v_now + CAST(round(r.delay_seconds * 1000000) AS bigint) * interval '1 microsecond');
    WITH job AS (
        INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, tenant, batch_id, active_job_id, scheduled_at, created_at, updated_at)
        SELECT v_queue, p_class, coalesce(e.arguments, 'null'), v_priority, v_attempts, v_crashes, v_once, v_policy, r.traceparent, r.tenant, r.batch_id, NULL, coalesce(CAST(v_at AS timestamp), (statement_timestamp() AT TIME ZONE 'UTC' + CAST(NULL AS bigint) * interval '1 microsecond')), (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC') FROM unnest(p_arguments) WITH ORDINALITY AS e (arguments, place) ORDER BY e.place RETURNING id
    ), member AS (
        INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) SELECT id, r.batch_id, v_now FROM job WHERE r.batch_id IS NOT NULL
    ), added AS (
        INSERT INTO windlass_wanted_keys (kind, target_id, amount) SELECT 'batch', r.batch_id, count(*) FROM job HAVING r.batch_id IS NOT NULL AND count(*) > 0
    ), ready AS (
        INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
        SELECT id, v_queue, v_priority, p_class, v_once OR coalesce(v_crashes = 0, false), v_now FROM job
        WHERE v_at IS NULL OR v_at <= v_now RETURNING 1
    ), later AS (
        INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
        SELECT id, v_queue, v_priority, v_at, v_now FROM job WHERE v_at > v_now
    ), expiring AS (
        INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, least(coalesce(CAST(CAST(expiry ->> 'at' AS timestamptz) AT TIME ZONE 'UTC' AS timestamp), greatest(coalesce(j.scheduled_at, (statement_timestamp() AT TIME ZONE 'UTC')), (statement_timestamp() AT TIME ZONE 'UTC')) + CAST(least(CAST(expiry ->> 'in' AS numeric), 31622400000000) AS bigint) * interval '1 millisecond'), timestamp '9999-12-30 00:00:00.000000')
        FROM (SELECT job.id, v_at AS scheduled_at, CAST(v_policy AS json) -> 'expiry' AS expiry FROM job WHERE v_policy LIKE '%"expiry":%') AS j,
            (SELECT 1) AS p WHERE j.expiry IS NOT NULL
    ), woken AS (
        SELECT CASE WHEN EXISTS (SELECT 1 FROM ready) THEN (SELECT count(pg_notify(w.channel, '')) FROM (SELECT coalesce(channel, 'windlass') AS channel, row_number() OVER (PARTITION BY left(channel, 25) ORDER BY last_heartbeat_at < (statement_timestamp() AT TIME ZONE 'UTC') - interval '30 seconds', random()) AS place FROM solid_queue_processes WHERE listening AND true) AS w WHERE w.place <= (SELECT count(*) FROM ready) + 1) END AS workers
    ) SELECT (SELECT array_agg(job.id ORDER BY job.id) FROM job) INTO v_ids FROM woken;
    RETURN QUERY SELECT unnest(v_ids);
END;
$$;

CREATE OR REPLACE FUNCTION windlass_enqueue_many(class text, jobs json) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RETURN QUERY SELECT windlass_enqueue_many_v2(class, jobs);
END;
$$;

-- Opens a batch, to which the same transaction adds jobs by their batch_id. Without jobs, it is over at the commit.
CREATE OR REPLACE FUNCTION windlass_open_batch(name text, metadata text DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    p_name text := name COLLATE "default";
    p_metadata text := metadata COLLATE "default";
    v_problem text := CASE
        WHEN p_name IS NULL THEN 'its name is missing'
        WHEN octet_length(p_name) NOT BETWEEN 1 AND 255 OR p_name COLLATE "C" ~ '[^a-zA-Z0-9_.:/-]' THEN 'its name must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`'
        WHEN octet_length(p_metadata) > 65536 THEN 'its metadata must be JSON text of at most 65536 bytes'
        WHEN strpos(replace(p_metadata, E'\\\\', ''), E'\\u0000') > 0 THEN 'its metadata contains a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(p_metadata) > 2 * 120 AND windlass_is_too_deep(p_metadata, 120) THEN 'its metadata is nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(p_metadata), E'\\ud') > 0 AND replace(p_metadata, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its metadata could not be read again: a text has half of a surrogate pair'
        WHEN p_metadata ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(p_metadata) THEN 'its metadata could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text' END;
    v_json json;
    v_batch bigint;
BEGIN
    IF v_problem IS NULL THEN
        BEGIN
            v_json := p_metadata;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
            v_problem := 'its metadata is not JSON';
        END;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot open the batch `%`: %', left(coalesce(p_name, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO solid_queue_batches (active_job_batch_id, description, metadata, enqueued_at, created_at, updated_at)
    VALUES ('windlass-' || replace(CAST(gen_random_uuid() AS text), '-', ''), p_name, p_metadata, (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC'), (statement_timestamp() AT TIME ZONE 'UTC'))
    RETURNING id INTO v_batch;
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('batch', v_batch);
    IF current_setting('windlass.woken_by', true) IS DISTINCT FROM CAST(statement_timestamp() AS text) THEN
        PERFORM windlass_wake();
    END IF;
    RETURN v_batch;
END;
$$;

-- Whether two texts are the same JSON, whatever the order of its fields. Numbers count by their values.
CREATE OR REPLACE FUNCTION windlass_is_same(p_first text, p_other text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN p_first = p_other OR CAST(p_first AS jsonb) = CAST(p_other AS jsonb);
EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
    RETURN false;
END;
$$;

-- Emits an event, as Rust does: jobs that wait for it run again, with its payload. An event stays: emitted once more with the
-- same payload it changes nothing, and another payload is refused.
CREATE OR REPLACE FUNCTION windlass_emit(name text, payload text DEFAULT NULL) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    p_name text := name COLLATE "default";
    p_payload text := coalesce(payload, 'null') COLLATE "default";
    v_problem text := CASE
        WHEN p_name IS NULL OR octet_length(p_name) NOT BETWEEN 1 AND 255 THEN 'its name must have 1 to 255 bytes and no NUL'
        WHEN (octet_length(p_payload) > 65536 AND octet_length(p_payload) > coalesce((SELECT CAST(substring(s.value FROM '^[0-9]{1,9}$') AS integer) FROM windlass_settings AS s WHERE s.name = 'max_event_payload'), 0)) THEN 'its payload must be JSON text of at most 65536 bytes, or as many as `windlass events max` has set; store the data elsewhere and pass a reference'
        WHEN strpos(replace(p_payload, E'\\\\', ''), E'\\u0000') > 0 THEN 'its payload contains a NUL character, which Postgres cannot keep; encode binary data'
        WHEN octet_length(p_payload) > 2 * 120 AND windlass_is_too_deep(p_payload, 120) THEN 'its payload is nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference'
        WHEN strpos(lower(p_payload), E'\\ud') > 0 AND replace(p_payload, E'\\\\', '//') ~ E'\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F](?!\\\\u[dD][c-fC-F])|(?<!\\\\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F])\\\\u[dD][c-fC-F]' THEN 'its payload could not be read again: a text has half of a surrogate pair'
        WHEN p_payload ~ '[0-9]{19}|[eE][+]?[0-9]{3}' AND windlass_has_wide_number(p_payload) THEN 'its payload could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text' END;
    v_json json;
    v_first text;
BEGIN
    IF v_problem IS NULL THEN
        BEGIN
            v_json := p_payload;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
            v_problem := 'its payload is not JSON';
        END;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot emit `%`: %', left(coalesce(p_name, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR v_round IN 1 .. 3 LOOP
        INSERT INTO windlass_events (name, payload, created_at) VALUES (p_name, p_payload, (statement_timestamp() AT TIME ZONE 'UTC')) ON CONFLICT (name) DO NOTHING;
        IF NOT FOUND THEN
            SELECT e.payload INTO v_first FROM windlass_events e WHERE e.name = p_name;
            CONTINUE WHEN NOT FOUND; -- cleared meanwhile
            IF NOT windlass_is_same(v_first, p_payload) THEN
                RAISE EXCEPTION 'cannot emit `%`: it was emitted before, with another payload', left(p_name, 80)
                    USING ERRCODE = 'unique_violation', HINT = 'Events stay. Use a name that is new, with an id in it.';
            END IF;
        END IF;
        -- Also for an event that was there: another program may have deleted the request.
        INSERT INTO windlass_wanted_keys (kind, name) VALUES ('event', p_name);
        IF current_setting('windlass.woken_by', true) IS DISTINCT FROM CAST(statement_timestamp() AS text) THEN
            PERFORM windlass_wake();
        END IF;
        RETURN;
    END LOOP;
    RAISE EXCEPTION 'cannot emit `%`: the event of this name was cleared meanwhile', left(p_name, 80)
        USING ERRCODE = 'serialization_failure', HINT = 'Emit it again.';
END;
$$;

-- Gives each function a fixed search_path, so that it finds only the tables beside it, and takes it from PUBLIC.
DO $$
DECLARE
    v_open record;
BEGIN
    FOR v_open IN WITH found AS (
    SELECT p.oid, CAST(p.proname AS text) AS name, p.prosecdef, p.proowner, n.nspname, n.nspowner,
        quote_ident(n.nspname) || ', pg_temp' AS path,
        p.prosecdef OR p.proname IN ('windlass_insert_enqueue_v2', 'windlass_enqueue_v2', 'windlass_enqueue',
            'windlass_enqueue_many_v2', 'windlass_enqueue_many', 'windlass_enqueue_each_v2', 'windlass_emit', 'windlass_open_batch') AS is_meant,
        NOT coalesce(p.proconfig && ARRAY['search_path=' || quote_ident(n.nspname) || ', pg_temp',
            CASE WHEN n.nspname ~ '^[a-z_][a-z0-9_]*$' THEN 'search_path=' || n.nspname || ', pg_temp' END], false) AS is_loose,
        EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0) AS is_public
    FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
    JOIN pg_proc p ON p.pronamespace IN (n.oid, to_regnamespace(quote_ident(current_schema())))
    WHERE t.oid = to_regclass('solid_queue_jobs') AND p.proname LIKE 'windlass\_%' AND p.prokind = 'f'
), maker AS MATERIALIZED (
    SELECT a.grantee AS role FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace,
        aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
    WHERE t.oid = to_regclass('solid_queue_jobs') AND a.privilege_type = 'CREATE'
    UNION SELECT o.proowner FROM pg_class t JOIN pg_proc o ON o.pronamespace = t.relnamespace
    WHERE t.oid = to_regclass('solid_queue_jobs') AND (o.proname LIKE 'windlass\_%' OR o.proname IN
        (SELECT b.proname FROM pg_proc b WHERE b.pronamespace = CAST('pg_catalog' AS regnamespace)))
    UNION SELECT o.oprowner FROM pg_class t JOIN pg_operator o ON o.oprnamespace = t.relnamespace
    WHERE t.oid = to_regclass('solid_queue_jobs')
    UNION SELECT coalesce(r.role, o.relowner) FROM pg_class t JOIN pg_class o ON o.relnamespace = t.relnamespace
    CROSS JOIN LATERAL (SELECT CAST(NULL AS oid)
        UNION ALL SELECT a.grantee FROM aclexplode(o.relacl) AS a WHERE a.privilege_type = 'TRIGGER'
        UNION ALL SELECT f.proowner FROM pg_trigger g JOIN pg_proc f ON f.oid = g.tgfoid WHERE g.tgrelid = o.oid AND NOT g.tgisinternal
    ) AS r (role)
    WHERE t.oid = to_regclass('solid_queue_jobs') AND o.relkind IN ('r', 'p', 'v', 'f', 'm')
        AND (o.relname LIKE 'solid\_queue\_%' OR o.relname LIKE 'windlass\_%' AND o.relname NOT LIKE 'windlass\_enqueue%')
), judged AS (
    SELECT f.*, f.is_meant AND EXISTS (SELECT 1 FROM maker m WHERE CASE WHEN m.role = 0 THEN true
        ELSE m.role <> f.nspowner AND NOT pg_has_role(m.role, f.proowner, 'MEMBER') END) AS is_shared
    FROM found f
) SELECT oid, name, path, is_meant AND NOT is_shared AS is_definer, concat_ws(' and ',
    CASE WHEN is_loose THEN 'has not the fixed search_path ' || path END,
    CASE WHEN is_public THEN 'may be called by every role' END,
    CASE WHEN is_shared AND prosecdef THEN 'has the rights of its owner, though other roles may create functions in its schema or triggers on its tables, or have' END,
    CASE WHEN is_meant AND NOT is_shared AND NOT prosecdef THEN 'has not the rights of its owner' END) AS fault
FROM judged WHERE is_loose OR is_public OR prosecdef <> (is_meant AND NOT is_shared) ORDER BY name
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %s', CAST(v_open.oid AS regprocedure), v_open.path);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', CAST(v_open.oid AS regprocedure));
        EXECUTE format('ALTER FUNCTION %s SECURITY %s', CAST(v_open.oid AS regprocedure),
            CASE WHEN v_open.is_definer THEN 'DEFINER' ELSE 'INVOKER' END);
    END LOOP;
END;
$$;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261128000002', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
