-- What failures have in common: class, kind and the shape of the message, as a hash. NULL for failures that another program
-- has stored, until a supervisor fills it in.
ALTER TABLE solid_queue_failed_executions ADD COLUMN fingerprint varchar;
CREATE INDEX index_windlass_failed_on_fingerprint ON solid_queue_failed_executions (fingerprint, id);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000010', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
