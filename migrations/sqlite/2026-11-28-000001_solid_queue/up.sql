-- Solid Queue 1.7's tables, created where they do not exist yet, so that the same migration serves an empty database
-- and one that a Rails app has made. AUTOINCREMENT matters for the claims: a plain rowid would be given out again
-- after the newest row went, and the claim id is the fence. The ready and claimed executions have no foreign key to
-- the jobs here: the transactions that write them guarantee it. Keys that Rails made stay.

-- The migrations that were applied. Another table than Diesel's, which belongs to the application.
CREATE TABLE IF NOT EXISTS windlass_schema_migrations (
    version varchar PRIMARY KEY NOT NULL,
    applied_at datetime(6) NOT NULL
);

-- A job, from its enqueue until it is cleared. One that has not finished has one execution, which says where it is.
CREATE TABLE IF NOT EXISTS solid_queue_jobs (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    queue_name varchar NOT NULL,
    class_name varchar NOT NULL,
    arguments text,
    priority integer NOT NULL DEFAULT 0,
    active_job_id varchar,
    scheduled_at datetime(6),
    finished_at datetime(6),
    concurrency_key varchar,
    created_at datetime(6) NOT NULL,
    updated_at datetime(6) NOT NULL,
    batch_id bigint
);
-- Only jobs of a batch are in the index, so that other jobs pay nothing for it.
CREATE INDEX IF NOT EXISTS index_solid_queue_jobs_on_batch_id ON solid_queue_jobs (batch_id) WHERE batch_id IS NOT NULL;

-- The jobs that workers may claim.
CREATE TABLE IF NOT EXISTS solid_queue_ready_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL,
    queue_name varchar NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_ready_executions_on_job_id ON solid_queue_ready_executions (job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_poll_all ON solid_queue_ready_executions (priority, job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_poll_by_queue ON solid_queue_ready_executions (queue_name, priority, job_id);

-- The jobs that a process works on. The id of a claim is the fence of its end.
CREATE TABLE IF NOT EXISTS solid_queue_claimed_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL,
    process_id bigint,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_claimed_executions_on_job_id ON solid_queue_claimed_executions (job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_claimed_executions_on_process_id_and_job_id ON solid_queue_claimed_executions (process_id, job_id);

-- The jobs that are due later.
CREATE TABLE IF NOT EXISTS solid_queue_scheduled_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE,
    queue_name varchar NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    scheduled_at datetime(6) NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_scheduled_executions_on_job_id ON solid_queue_scheduled_executions (job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_dispatch_all ON solid_queue_scheduled_executions (scheduled_at, priority, job_id);

-- The jobs that wait for a slot of their concurrency key.
CREATE TABLE IF NOT EXISTS solid_queue_blocked_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE,
    queue_name varchar NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    concurrency_key varchar NOT NULL,
    expires_at datetime(6) NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_blocked_executions_on_job_id ON solid_queue_blocked_executions (job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_blocked_executions_for_release ON solid_queue_blocked_executions (concurrency_key, priority, job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_blocked_executions_for_maintenance ON solid_queue_blocked_executions (expires_at, concurrency_key);

-- The jobs that failed, until they are retried or discarded.
CREATE TABLE IF NOT EXISTS solid_queue_failed_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE,
    error text,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_failed_executions_on_job_id ON solid_queue_failed_executions (job_id);

-- The processes that are alive, by their heartbeats.
CREATE TABLE IF NOT EXISTS solid_queue_processes (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    kind varchar NOT NULL,
    last_heartbeat_at datetime(6) NOT NULL,
    supervisor_id bigint,
    pid integer NOT NULL,
    hostname varchar,
    metadata text,
    created_at datetime(6) NOT NULL,
    name varchar NOT NULL
);
CREATE INDEX IF NOT EXISTS index_solid_queue_processes_on_last_heartbeat_at ON solid_queue_processes (last_heartbeat_at);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_processes_on_name_and_supervisor_id ON solid_queue_processes (name, supervisor_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_processes_on_supervisor_id ON solid_queue_processes (supervisor_id);

-- The queues of which no job is claimed.
CREATE TABLE IF NOT EXISTS solid_queue_pauses (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    queue_name varchar NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_pauses_on_queue_name ON solid_queue_pauses (queue_name);

-- The free slots of the concurrency keys of jobs of Rails.
CREATE TABLE IF NOT EXISTS solid_queue_semaphores (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    key varchar NOT NULL,
    value integer NOT NULL DEFAULT 1,
    expires_at datetime(6) NOT NULL,
    created_at datetime(6) NOT NULL,
    updated_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_semaphores_on_key ON solid_queue_semaphores (key);
CREATE INDEX IF NOT EXISTS index_solid_queue_semaphores_on_key_and_value ON solid_queue_semaphores (key, value);
CREATE INDEX IF NOT EXISTS index_solid_queue_semaphores_on_expires_at ON solid_queue_semaphores (expires_at);

-- The recurring tasks, with their schedules.
CREATE TABLE IF NOT EXISTS solid_queue_recurring_tasks (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    key varchar NOT NULL,
    schedule varchar NOT NULL,
    command varchar(2048),
    class_name varchar,
    arguments text,
    queue_name varchar,
    priority integer DEFAULT 0,
    static boolean NOT NULL DEFAULT 1,
    description text,
    created_at datetime(6) NOT NULL,
    updated_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_recurring_tasks_on_key ON solid_queue_recurring_tasks (key);
CREATE INDEX IF NOT EXISTS index_solid_queue_recurring_tasks_on_static ON solid_queue_recurring_tasks (static);

-- The ticks of recurring tasks that were enqueued: the constraint that none is enqueued twice.
CREATE TABLE IF NOT EXISTS solid_queue_recurring_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE,
    task_key varchar NOT NULL,
    run_at datetime(6) NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_recurring_executions_on_job_id ON solid_queue_recurring_executions (job_id);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_recurring_executions_on_task_key_and_run_at ON solid_queue_recurring_executions (task_key, run_at);

-- The batches, with their counts and what follows them.
CREATE TABLE IF NOT EXISTS solid_queue_batches (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    active_job_batch_id varchar,
    description varchar,
    on_finish text,
    on_success text,
    on_failure text,
    metadata text,
    total_jobs integer NOT NULL DEFAULT 0,
    completed_jobs integer NOT NULL DEFAULT 0,
    failed_jobs integer NOT NULL DEFAULT 0,
    enqueued_at datetime(6),
    finished_at datetime(6),
    failed_at datetime(6),
    created_at datetime(6) NOT NULL,
    updated_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_batches_on_active_job_batch_id ON solid_queue_batches (active_job_batch_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_batches_on_finished_at ON solid_queue_batches (finished_at);

-- The jobs of a batch that have not ended.
CREATE TABLE IF NOT EXISTS solid_queue_batch_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE,
    batch_id bigint NOT NULL REFERENCES solid_queue_batches (id) ON DELETE CASCADE,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_batch_executions_on_job_id ON solid_queue_batch_executions (job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_batch_executions_on_batch_id ON solid_queue_batch_executions (batch_id);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261128000001', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
