DROP TABLE windlass_wanted_keys;
DROP INDEX index_windlass_claimed_on_concurrency_key;
ALTER TABLE solid_queue_claimed_executions DROP COLUMN concurrency_key;
DROP INDEX index_windlass_ready_on_concurrency_key;
ALTER TABLE solid_queue_ready_executions DROP COLUMN concurrency_key;
DROP INDEX index_windlass_jobs_on_concurrency_key;
ALTER TABLE solid_queue_jobs DROP COLUMN concurrency_on_conflict;
ALTER TABLE solid_queue_jobs DROP COLUMN concurrency_limit;
DELETE FROM windlass_schema_migrations WHERE version = '20261121000009';
