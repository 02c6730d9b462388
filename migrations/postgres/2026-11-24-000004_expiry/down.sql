DROP TABLE windlass_expiries;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000004';
