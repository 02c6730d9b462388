DROP TABLE windlass_web_sessions;
DROP TABLE windlass_web_tokens;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000011';
