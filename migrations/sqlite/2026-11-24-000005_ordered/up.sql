-- The concurrency key of a job that waits for its next run and keeps its slot: one of an ordered
-- key, behind which nothing of that key runs.
ALTER TABLE solid_queue_scheduled_executions ADD COLUMN concurrency_key varchar;
CREATE INDEX index_windlass_scheduled_on_concurrency_key ON solid_queue_scheduled_executions (concurrency_key)
    WHERE concurrency_key IS NOT NULL;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000005', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
