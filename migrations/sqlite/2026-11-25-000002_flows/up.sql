-- A batch is over when no row of solid_queue_batch_executions is left: found from behind, since jobs end from the front.
CREATE INDEX windlass_batch_executions_on_batch ON solid_queue_batch_executions (batch_id, job_id);

-- Jobs that wait for a batch to end.
CREATE TABLE windlass_edges (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    child_job_id bigint NOT NULL,
    parent_batch_id bigint NOT NULL,
    runs_on varchar NOT NULL,
    otherwise varchar NOT NULL,
    outcome varchar,
    created_at datetime(6) NOT NULL
);
CREATE UNIQUE INDEX windlass_edges_on_child ON windlass_edges (child_job_id, parent_batch_id);
CREATE INDEX windlass_edges_on_parent_batch ON windlass_edges (parent_batch_id);

-- Jobs of batches that ended without success.
CREATE TABLE windlass_batch_failures (
    job_id bigint PRIMARY KEY NOT NULL,
    batch_id bigint NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE INDEX windlass_batch_failures_on_batch ON windlass_batch_failures (batch_id, job_id);

-- Lists of batches.
CREATE INDEX windlass_batches_open ON solid_queue_batches (id) WHERE finished_at IS NULL;
CREATE INDEX windlass_batches_over ON solid_queue_batches (id) WHERE finished_at IS NOT NULL;
CREATE INDEX windlass_batches_failed ON solid_queue_batches (id) WHERE failed_at IS NOT NULL;

-- Whichever program ends a job of a batch, the next promotion looks whether the batch is over.
CREATE TRIGGER windlass_batch_left AFTER DELETE ON solid_queue_batch_executions
WHEN 'windlass/batch/' || OLD.batch_id NOT IN (SELECT key FROM windlass_wanted_keys)
BEGIN
    INSERT INTO windlass_wanted_keys (key) VALUES ('windlass/batch/' || OLD.batch_id);
END;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261125000002', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
