DROP INDEX index_windlass_failed_on_fingerprint;
ALTER TABLE solid_queue_failed_executions DROP COLUMN fingerprint;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000010';
