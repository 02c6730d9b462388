DROP FUNCTION windlass_admit_quota (text, bigint, bigint, bigint, bigint, text);
DROP TABLE windlass_quota_jobs;
DROP TABLE windlass_quota_counts;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000001';
