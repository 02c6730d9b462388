DROP TABLE windlass_operations;
DROP TABLE windlass_audit;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000009';
