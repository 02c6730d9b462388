DROP TABLE windlass_quota_jobs;
DROP TABLE windlass_quota_slots;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000001';
