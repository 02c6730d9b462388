-- The places of a quota, for each kind of its limits: enqueues in a day or minute, and jobs that wait.
-- On Postgres they are shared out among up to 1,000 slots: an enqueue takes its places from a slot that
-- no other transaction has locked. SQLite has one slot.
CREATE TABLE windlass_quota_slots (
    quota varchar NOT NULL,
    per varchar NOT NULL,
    slot bigint NOT NULL,
    -- The start of the window in which `jobs` were enqueued; for jobs that wait, the day of the last one.
    starts_at timestamp(6) NOT NULL,
    jobs bigint NOT NULL,
    -- The limits of the quota, as the last enqueue that used the slot had them.
    limits text NOT NULL,
    PRIMARY KEY (quota, per, slot)
);
CREATE INDEX index_windlass_quota_slots_on_starts_at ON windlass_quota_slots (starts_at);

-- The jobs of quotas that limit how many wait. Rows of jobs that do not wait are deleted when the quota
-- is used up, and now and then.
CREATE TABLE windlass_quota_jobs (
    job_id bigint PRIMARY KEY NOT NULL,
    quota varchar NOT NULL,
    slot bigint NOT NULL
);
CREATE INDEX index_windlass_quota_jobs_on_quota ON windlass_quota_jobs (quota, job_id);

-- A slot changes with each enqueue: with room on its page the new version needs no entry in an index.
ALTER TABLE windlass_quota_slots SET (fillfactor = 50);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000001', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
