ALTER TABLE solid_queue_processes DROP COLUMN channel;
DELETE FROM windlass_schema_migrations WHERE version = '20261122000001';
