DROP VIEW windlass_enqueue_many;
DROP VIEW windlass_enqueue_many_v1;
DROP VIEW windlass_enqueue;
DROP VIEW windlass_enqueue_v1;
DROP VIEW windlass_named_job_v1;
DROP VIEW windlass_place_job_v1;
DROP VIEW windlass_place_jobs_v1;
DROP TABLE windlass_settings;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000014';
