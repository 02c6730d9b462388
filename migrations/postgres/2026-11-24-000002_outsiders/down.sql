ALTER TABLE windlass_classes DROP COLUMN quota;
ALTER TABLE windlass_classes DROP COLUMN internal;
DROP TABLE windlass_public_tokens;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000002';
