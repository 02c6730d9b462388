DROP TRIGGER windlass_batch_left;
DROP TABLE windlass_batch_failures;
DROP TABLE windlass_edges;
DROP INDEX windlass_batch_executions_on_batch;
DROP INDEX windlass_batches_open;
DROP INDEX windlass_batches_over;
DROP INDEX windlass_batches_failed;
DELETE FROM windlass_schema_migrations WHERE version = '20261125000002';
