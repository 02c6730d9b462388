-- What makes the hot paths fast.

-- The job is at most once, or was running when a process died: it is noted as
-- begun only when a thread is free for it. NULL: it is neither, and may be
-- taken to have begun a few milliseconds early, with others as short.
ALTER TABLE solid_queue_ready_executions ADD COLUMN cautious boolean;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000006', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
