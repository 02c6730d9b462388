-- How long a unique id is held follows from where its job stands, so that
-- neither a claim nor an end has to touch this table, and nobody who ends jobs
-- ever waits for somebody who enqueues one.
DROP INDEX index_windlass_unique_jobs_on_held_until;
ALTER TABLE windlass_unique_jobs DROP COLUMN held_until;
ALTER TABLE windlass_unique_jobs DROP COLUMN again;
-- The job that has to end before the one that holds the id may begin.
ALTER TABLE windlass_unique_jobs ADD COLUMN after_job_id bigint;
CREATE INDEX index_windlass_unique_jobs_on_after_job_id ON windlass_unique_jobs (after_job_id) WHERE after_job_id IS NOT NULL;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000005', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
