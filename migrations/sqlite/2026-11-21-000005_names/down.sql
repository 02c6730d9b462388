DROP INDEX index_windlass_unique_jobs_on_after_job_id;
ALTER TABLE windlass_unique_jobs DROP COLUMN after_job_id;
ALTER TABLE windlass_unique_jobs ADD COLUMN held_until datetime(6);
ALTER TABLE windlass_unique_jobs ADD COLUMN again text;
CREATE INDEX index_windlass_unique_jobs_on_held_until ON windlass_unique_jobs (held_until) WHERE held_until IS NOT NULL;
DELETE FROM windlass_schema_migrations WHERE version = '20261121000005';
