DROP INDEX index_windlass_scheduled_on_concurrency_key;
ALTER TABLE solid_queue_scheduled_executions DROP COLUMN concurrency_key;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000005';
