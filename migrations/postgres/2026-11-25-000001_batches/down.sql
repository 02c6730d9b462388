DROP TRIGGER windlass_leave_batch ON solid_queue_jobs;
DROP FUNCTION windlass_leave_batch();
DROP TABLE solid_queue_batch_executions;
DROP TABLE solid_queue_batches;
DROP INDEX index_solid_queue_jobs_on_batch_id;
ALTER TABLE solid_queue_jobs DROP COLUMN batch_id;
DELETE FROM windlass_schema_migrations WHERE version = '20261125000001';
