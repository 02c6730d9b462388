DROP TABLE windlass_class_pauses;
DROP TABLE windlass_limits;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000006';
