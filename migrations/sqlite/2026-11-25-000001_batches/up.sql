-- Solid Queue 1.7's tables, created where they do not exist yet, as its own migration creates them where Windlass has not.
-- Only jobs of a batch are in the index, so that other jobs pay nothing for it.
ALTER TABLE solid_queue_jobs ADD COLUMN batch_id bigint;
CREATE INDEX IF NOT EXISTS index_solid_queue_jobs_on_batch_id ON solid_queue_jobs (batch_id) WHERE batch_id IS NOT NULL;

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

CREATE TABLE IF NOT EXISTS solid_queue_batch_executions (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    job_id bigint NOT NULL REFERENCES solid_queue_jobs (id) ON DELETE CASCADE,
    batch_id bigint NOT NULL REFERENCES solid_queue_batches (id) ON DELETE CASCADE,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS index_solid_queue_batch_executions_on_job_id ON solid_queue_batch_executions (job_id);
CREATE INDEX IF NOT EXISTS index_solid_queue_batch_executions_on_batch_id ON solid_queue_batch_executions (batch_id);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261125000001', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
