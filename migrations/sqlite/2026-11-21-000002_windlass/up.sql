-- What Windlass adds to Solid Queue's tables: nullable or defaulted columns
-- only, so that a running Rails app is not disturbed.

-- What a supervisor must know to recover a job without its code.
ALTER TABLE solid_queue_jobs ADD COLUMN attempts integer NOT NULL DEFAULT 0;
ALTER TABLE solid_queue_jobs ADD COLUMN max_attempts integer;
ALTER TABLE solid_queue_jobs ADD COLUMN crash_count integer NOT NULL DEFAULT 0;
ALTER TABLE solid_queue_jobs ADD COLUMN max_crashes integer;
ALTER TABLE solid_queue_jobs ADD COLUMN at_most_once boolean NOT NULL DEFAULT 0;
-- The claim that ended last by its owner's own word: tells a worker whose
-- COMMIT got no answer that the ending was its own.
ALTER TABLE solid_queue_jobs ADD COLUMN last_claim_id bigint;
-- Makes a repeated enqueue harmless.
ALTER TABLE solid_queue_jobs ADD COLUMN idempotency_key varchar;
CREATE UNIQUE INDEX index_windlass_jobs_on_idempotency_key ON solid_queue_jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Lets a worker claim only what it can perform. NULL in rows made by Rails.
ALTER TABLE solid_queue_ready_executions ADD COLUMN class_name varchar;

-- NULL: claimed, but no thread has begun it.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN started_at datetime(6);

-- NULL in the rows of Rails processes, which Windlass leaves alone.
ALTER TABLE solid_queue_processes ADD COLUMN heartbeat_seq bigint;
ALTER TABLE solid_queue_processes ADD COLUMN draining boolean NOT NULL DEFAULT 0;
-- Wants to be notified of new work.
ALTER TABLE solid_queue_processes ADD COLUMN listening boolean NOT NULL DEFAULT 0;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000002', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
