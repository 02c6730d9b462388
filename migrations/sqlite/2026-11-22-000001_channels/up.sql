-- The channel on which a worker is notified of new work. Up to its second `_`,
-- it is the same for workers that take the same jobs. NULL: that of all.
ALTER TABLE solid_queue_processes ADD COLUMN channel varchar;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261122000001', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
