-- What becomes of a job. New columns are nullable and stay NULL for jobs that
-- use none of this; new tables have rows only where it is used. None of them
-- refers to the jobs by a foreign key: its check would be paid by every job
-- that is deleted, and ids are never used twice, so that a row which outlives
-- its job misleads nobody until the supervisor sweeps it away.

-- What the job's type or its enqueue says beyond the columns above, as JSON.
ALTER TABLE solid_queue_jobs ADD COLUMN policy text;
-- The name by which the application knows the job.
ALTER TABLE solid_queue_jobs ADD COLUMN unique_id varchar;
CREATE INDEX index_windlass_jobs_on_unique_id ON solid_queue_jobs (unique_id) WHERE unique_id IS NOT NULL;

-- Somebody asked for the running job to be cancelled. It stays with the claim
-- until the claim ends, however it ends.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN cancel_requested_at datetime(6);
-- What is to become of the job when its process ends, decided by that process
-- when the job overran its time: JSON.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN verdict text;
-- The thread, and the progress that the job has told: JSON.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN note text;

-- How attempts ended that did not succeed; the newest few of each job.
CREATE TABLE windlass_attempts (
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
CREATE INDEX index_windlass_attempts_on_job_id ON windlass_attempts (job_id, id);

-- What jobs returned, for as long as somebody may ask.
CREATE TABLE windlass_results (
    job_id bigint PRIMARY KEY NOT NULL,
    unique_id varchar,
    class_name varchar NOT NULL,
    outcome varchar NOT NULL,
    result text,
    error text,
    attempt integer NOT NULL,
    progress text,
    finished_at datetime(6) NOT NULL,
    expires_at datetime(6) NOT NULL
);
CREATE INDEX index_windlass_results_on_unique_id ON windlass_results (unique_id, job_id) WHERE unique_id IS NOT NULL;
CREATE INDEX index_windlass_results_on_expires_at ON windlass_results (expires_at);

-- Who waits for a result, so that nobody is notified for nothing.
CREATE TABLE windlass_waiters (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL,
    expires_at datetime(6) NOT NULL
);
CREATE INDEX index_windlass_waiters_on_job_id ON windlass_waiters (job_id);

-- Which job holds a unique id: the constraint that two of them cannot. `held_until`: the job has ended, and its result
-- holds the id until then. `again`: the job to be enqueued when the running one ends, as JSON. No comment inside, because
-- SQLite before 3.53 cannot drop a column behind one.
CREATE TABLE windlass_unique_jobs (
    unique_id varchar PRIMARY KEY NOT NULL,
    job_id bigint NOT NULL,
    scope varchar NOT NULL,
    held_until datetime(6),
    again text
);
CREATE INDEX index_windlass_unique_jobs_on_job_id ON windlass_unique_jobs (job_id);
CREATE INDEX index_windlass_unique_jobs_on_held_until ON windlass_unique_jobs (held_until) WHERE held_until IS NOT NULL;

-- The steps that a job has behind it.
CREATE TABLE windlass_steps (
    job_id bigint NOT NULL,
    name varchar NOT NULL,
    value text NOT NULL,
    created_at datetime(6) NOT NULL,
    PRIMARY KEY (job_id, name)
);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000003', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
