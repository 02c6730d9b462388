DROP INDEX index_windlass_attempts_on_outcome;
DROP TABLE windlass_classes;
DELETE FROM windlass_schema_migrations WHERE version = '20261121000013';
