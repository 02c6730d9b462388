DROP TRIGGER windlass_place_job_v1_wait;
DROP TABLE windlass_waits;
DROP TABLE windlass_events;
DELETE FROM windlass_schema_migrations WHERE version = '20261125000004';
