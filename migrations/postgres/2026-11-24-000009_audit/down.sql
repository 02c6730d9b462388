DROP TABLE windlass_operations;
DROP TABLE windlass_audit;
DROP FUNCTION windlass_audit_is_append_only();
DELETE FROM windlass_schema_migrations WHERE version = '20261124000009';
