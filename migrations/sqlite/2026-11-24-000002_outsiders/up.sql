-- The public tokens of jobs, as hexadecimal SHA-256 of their text: who has one sees
-- what is public of the job, and its result where the class allows that.
CREATE TABLE windlass_public_tokens (
    digest varchar(64) PRIMARY KEY NOT NULL,
    job_id bigint NOT NULL,
    shows_result boolean NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE INDEX index_windlass_public_tokens_on_job ON windlass_public_tokens (job_id, created_at);

-- Whether only the program's own code may enqueue jobs of the class.
ALTER TABLE windlass_classes ADD COLUMN internal boolean NOT NULL DEFAULT 0;

-- The quota of enqueues by the name of a class, as JSON.
ALTER TABLE windlass_classes ADD COLUMN quota text;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000002', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
