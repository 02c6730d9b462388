ALTER TABLE solid_queue_recurring_tasks DROP COLUMN starts;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000003';
