ALTER TABLE solid_queue_ready_executions DROP COLUMN cautious;
DELETE FROM windlass_schema_migrations WHERE version = '20261121000006';
