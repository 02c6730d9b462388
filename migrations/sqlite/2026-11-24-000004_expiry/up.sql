-- By when jobs must have started. A row is deleted when its job starts. `released_claim_id` is the last claim of the job, if
-- no thread has started it.
CREATE TABLE windlass_expiries (
    job_id bigint PRIMARY KEY NOT NULL,
    expires_at datetime(6) NOT NULL,
    released_claim_id bigint
);
CREATE INDEX index_windlass_expiries_on_expires_at ON windlass_expiries (expires_at);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000004', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
