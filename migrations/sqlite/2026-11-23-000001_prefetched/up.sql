-- True: the claim was made ahead of the worker's threads, so that it is not known
-- whether its job had started when its process died.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN prefetched boolean;

-- When an idle worker last asked this one to release what it has not started.
ALTER TABLE solid_queue_processes ADD COLUMN release_requested_at datetime(6);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261123000001', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
