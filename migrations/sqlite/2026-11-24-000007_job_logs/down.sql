DROP TABLE windlass_job_logs;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000007';
