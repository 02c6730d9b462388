ALTER TABLE solid_queue_jobs DROP COLUMN traceparent;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000012';
