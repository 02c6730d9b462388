-- A batch is over when no row of solid_queue_batch_executions is left: found from behind, since jobs end from the front.
CREATE INDEX windlass_batch_executions_on_batch ON solid_queue_batch_executions (batch_id, job_id);

-- Jobs that wait for a job or a batch to end.
CREATE TABLE windlass_edges (
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
CREATE UNIQUE INDEX windlass_edges_on_child_and_job ON windlass_edges (child_job_id, parent_job_id);
-- By the outcome, so that the edges of a parent that are left are found without those that have theirs.
CREATE INDEX windlass_edges_on_parent_job ON windlass_edges (parent_job_id, outcome) WHERE parent_job_id IS NOT NULL;
CREATE INDEX windlass_edges_on_parent_batch ON windlass_edges (parent_batch_id, outcome) WHERE parent_batch_id IS NOT NULL;
CREATE INDEX windlass_edges_on_failed_job ON windlass_edges (parent_job_id) WHERE outcome = 'failed' AND otherwise = 'wait' AND runs_on = 'success';
CREATE INDEX windlass_edges_on_failed_batch ON windlass_edges (parent_batch_id) WHERE outcome = 'failed' AND otherwise = 'wait' AND runs_on = 'success';

-- Jobs of batches that ended without success. A failure is final if no retry brings the job back into its batch.
CREATE TABLE windlass_batch_failures (
    job_id bigint PRIMARY KEY NOT NULL,
    batch_id bigint NOT NULL,
    is_final boolean NOT NULL DEFAULT 0,
    created_at datetime(6) NOT NULL
);
CREATE INDEX windlass_batch_failures_on_batch ON windlass_batch_failures (batch_id, job_id);
CREATE INDEX windlass_batch_failures_final ON windlass_batch_failures (batch_id) WHERE is_final;

-- Lists of batches.
CREATE INDEX windlass_batches_open ON solid_queue_batches (id) WHERE finished_at IS NULL;
CREATE INDEX windlass_batches_over ON solid_queue_batches (id) WHERE finished_at IS NOT NULL;
CREATE INDEX windlass_batches_failed ON solid_queue_batches (id) WHERE failed_at IS NOT NULL;

-- Whichever program ends a job of a batch, the next promotion looks whether the batch is over.
CREATE TRIGGER windlass_batch_left AFTER DELETE ON solid_queue_batch_executions
WHEN NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key IS NULL AND w.target_id = OLD.batch_id AND w.kind = 'batch' AND w.amount IS NULL)
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('batch', OLD.batch_id);
END;

-- Whether jobs wait for this one. It is set in the transaction that enqueues them.
ALTER TABLE solid_queue_jobs ADD COLUMN has_dependents boolean;

-- Whichever program ends such a job, the next promotion looks what waited for it.
CREATE TRIGGER windlass_parent_finished AFTER UPDATE OF finished_at ON solid_queue_jobs
WHEN NEW.has_dependents AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('ended', NEW.id);
END;

CREATE TRIGGER windlass_parent_deleted AFTER DELETE ON solid_queue_jobs
WHEN OLD.has_dependents AND OLD.finished_at IS NULL
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('ended', OLD.id);
END;

CREATE TRIGGER windlass_parent_failed AFTER INSERT ON solid_queue_failed_executions
WHEN (SELECT has_dependents FROM solid_queue_jobs WHERE id = NEW.job_id)
BEGIN
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('ended', NEW.job_id);
END;

-- A failed job of a batch that is deleted is not retried any more: the next promotion looks what waited for that.
CREATE TRIGGER windlass_failure_deleted AFTER DELETE ON solid_queue_jobs
WHEN OLD.batch_id IS NOT NULL AND OLD.finished_at IS NULL
BEGIN
    UPDATE windlass_batch_failures SET is_final = true WHERE job_id = OLD.id;
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'batch', f.batch_id FROM windlass_batch_failures f
    WHERE f.job_id = OLD.id AND NOT EXISTS
            (SELECT 1 FROM windlass_wanted_keys w WHERE w.key IS NULL AND w.target_id = f.batch_id AND w.kind = 'batch' AND w.amount IS NULL)
        AND EXISTS (SELECT 1 FROM windlass_edges w WHERE w.parent_batch_id = f.batch_id AND w.otherwise = 'wait');
END;

-- The results of a batch's jobs, read in their order by what follows.
ALTER TABLE windlass_results ADD COLUMN batch_id bigint;
CREATE INDEX windlass_results_on_batch ON windlass_results (batch_id, job_id) WHERE batch_id IS NOT NULL;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261125000002', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
