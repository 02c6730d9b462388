-- Who paused a queue, and why. NULL where Rails or an older program did.
ALTER TABLE solid_queue_pauses ADD COLUMN paused_by varchar;
ALTER TABLE solid_queue_pauses ADD COLUMN pause_reason text;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000008', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
