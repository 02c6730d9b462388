ALTER TABLE solid_queue_pauses DROP COLUMN pause_reason;
ALTER TABLE solid_queue_pauses DROP COLUMN paused_by;
DELETE FROM windlass_schema_migrations WHERE version = '20261121000008';
