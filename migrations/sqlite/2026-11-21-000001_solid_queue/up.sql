-- Solid Queue 1.5's tables, created where they do not exist yet, so that the
-- same migration serves an empty database and one that a Rails app has made.
-- AUTOINCREMENT matters for the claims: a plain rowid would be given out again
-- after the newest row went, and the claim id is the fence.
-- The hot tables (ready, claimed) carry no foreign key to jobs here: the
-- transactions that write them already guarantee it, and the check costs
-- about half of the throughput. Where Rails made one, it stays.

CREATE TABLE IF NOT EXISTS windlass_schema_migrations (
    version varchar PRIMARY KEY NOT NULL,
    applied_at datetime(6) NOT NULL
);

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
    updated_at datetime(6) NOT NULL
);

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

CREATE TABLE IF NOT EXISTS solid_queue_claimed_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL,
    process_id bigint,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_claimed_executions_on_job_id ON solid_queue_claimed_executions (job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_claimed_executions_on_process_id_and_job_id ON solid_queue_claimed_executions (process_id, job_id);

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

CREATE TABLE IF NOT EXISTS solid_queue_failed_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE,
    error text,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_failed_executions_on_job_id ON solid_queue_failed_executions (job_id);

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

CREATE TABLE IF NOT EXISTS solid_queue_pauses (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    queue_name varchar NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_pauses_on_queue_name ON solid_queue_pauses (queue_name);

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

CREATE TABLE IF NOT EXISTS solid_queue_recurring_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE,
    task_key varchar NOT NULL,
    run_at datetime(6) NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_recurring_executions_on_job_id ON solid_queue_recurring_executions (job_id);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_recurring_executions_on_task_key_and_run_at ON solid_queue_recurring_executions (task_key, run_at);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000001', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
