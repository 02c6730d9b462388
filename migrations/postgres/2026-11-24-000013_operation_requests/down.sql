DROP INDEX index_windlass_operations_on_request_id;
ALTER TABLE windlass_operations DROP COLUMN request_id;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000013';
