-- Concurrency limits. Who holds a slot of a key is seen by the rows: a ready
-- or claimed execution that names the key. There is no count to keep, so none
-- can leak; jobs without a key have no part in any of it.

-- How many jobs of its key may be ready or claimed at once. NULL beside a key:
-- a job of Rails, whose limit is Solid Queue's own matter.
ALTER TABLE solid_queue_jobs ADD COLUMN concurrency_slots integer;
-- 'discard', or NULL to wait.
ALTER TABLE solid_queue_jobs ADD COLUMN concurrency_conflict varchar;
-- Finds the youngest job of a key, whose limit is the one that counts.
CREATE INDEX index_windlass_jobs_on_concurrency_key ON solid_queue_jobs (concurrency_key, id) WHERE concurrency_slots IS NOT NULL;

ALTER TABLE solid_queue_ready_executions ADD COLUMN concurrency_key varchar;
CREATE INDEX index_windlass_ready_on_concurrency_key ON solid_queue_ready_executions (concurrency_key) WHERE concurrency_key IS NOT NULL;
ALTER TABLE solid_queue_claimed_executions ADD COLUMN concurrency_key varchar;
-- The semaphore of Solid Queue of which the job holds a slot.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN semaphore_id bigint;
CREATE INDEX index_windlass_claimed_on_concurrency_key ON solid_queue_claimed_executions (concurrency_key) WHERE concurrency_key IS NOT NULL;

-- Jobs that Solid Queue has blocked, whose wait expires.
CREATE INDEX index_windlass_blocked_by_ruby ON solid_queue_blocked_executions (concurrency_key)
    WHERE expires_at < '9999-12-31 00:00:00.000000';

-- Requests to the next promotion: keys of which a transaction has blocked a job
-- or freed a slot. What is no key has a kind, and is named by an id or a name, so
-- that no key of a user can be one. Only ever inserted and deleted, so that no
-- transaction that enqueues makes another wait.
CREATE TABLE windlass_wanted_keys (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    key varchar,
    kind varchar,
    target_id bigint,
    amount bigint,
    name varchar,
    -- How often the database has refused its promotion.
    failures integer,
    -- Since when it is known to wait.
    waiting_since datetime(6)
);
CREATE INDEX index_windlass_wanted_keys_on_key ON windlass_wanted_keys (key, target_id, name);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000009', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
