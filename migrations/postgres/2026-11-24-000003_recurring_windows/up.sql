-- The deployments whose start a task with the schedule `@start` has had, oldest
-- first: a JSON array of revision texts. A program of an old deployment that
-- starts again finds its own among them.
ALTER TABLE solid_queue_recurring_tasks ADD COLUMN starts text;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000003', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
