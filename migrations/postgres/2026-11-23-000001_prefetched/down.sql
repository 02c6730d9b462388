ALTER TABLE solid_queue_processes DROP COLUMN release_requested_at;
ALTER TABLE solid_queue_claimed_executions DROP COLUMN prefetched;
DELETE FROM windlass_schema_migrations WHERE version = '20261123000001';
