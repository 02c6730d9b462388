-- How many jobs were enqueued under a quota in a window. Each connection counts in rows of its own,
-- so that no enqueue waits for the transaction of another: `slot` is the process id of its server
-- process, and 0 on SQLite. Windows are rows of their own, and a later one never changes an earlier.
CREATE TABLE windlass_quota_counts (
    quota varchar NOT NULL,
    per varchar NOT NULL,
    starts_at datetime(6) NOT NULL,
    slot bigint NOT NULL,
    jobs bigint NOT NULL,
    limits text NOT NULL,
    PRIMARY KEY (quota, per, starts_at, slot)
);

-- The jobs of quotas that limit how many wait. Rows of jobs that do not wait are deleted now and then.
CREATE TABLE windlass_quota_jobs (
    job_id bigint PRIMARY KEY NOT NULL,
    quota varchar NOT NULL
);
CREATE INDEX index_windlass_quota_jobs_on_quota ON windlass_quota_jobs (quota, job_id);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000001', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
