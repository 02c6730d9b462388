-- Concurrency limits. Who holds a slot of a key is seen by the rows: a ready
-- or claimed execution that names the key. There is no count to keep, so none
-- can leak; jobs without a key have no part in any of it.

-- How many jobs of its key may be ready or claimed at once. NULL beside a key:
-- a job of Rails, whose limit is Solid Queue's own matter.
ALTER TABLE solid_queue_jobs ADD COLUMN concurrency_limit integer;
-- 'discard', or NULL to wait.
ALTER TABLE solid_queue_jobs ADD COLUMN concurrency_on_conflict varchar;
-- Finds the youngest job of a key, whose limit is the one that counts.
CREATE INDEX index_windlass_jobs_on_concurrency_key ON solid_queue_jobs (concurrency_key, id) WHERE concurrency_limit IS NOT NULL;

ALTER TABLE solid_queue_ready_executions ADD COLUMN concurrency_key varchar;
CREATE INDEX index_windlass_ready_on_concurrency_key ON solid_queue_ready_executions (concurrency_key) WHERE concurrency_key IS NOT NULL;
ALTER TABLE solid_queue_claimed_executions ADD COLUMN concurrency_key varchar;
CREATE INDEX index_windlass_claimed_on_concurrency_key ON solid_queue_claimed_executions (concurrency_key) WHERE concurrency_key IS NOT NULL;

-- Keys of which somebody has blocked a job or given up a slot: whoever comes
-- next promotes their jobs. Only ever inserted and deleted, so that no
-- transaction that enqueues makes another wait.
CREATE TABLE windlass_wanted_keys (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    key varchar NOT NULL,
    -- How often the database has refused its promotion.
    failures integer,
    -- Since when it is known to wait.
    waiting_since datetime(6)
);
CREATE INDEX index_windlass_wanted_keys_on_key ON windlass_wanted_keys (key);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000009', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
