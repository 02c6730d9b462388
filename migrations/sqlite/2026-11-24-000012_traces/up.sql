-- The trace context of the enqueue, as the header `traceparent` of W3C Trace Context. Any program may write it; a text
-- of another form counts as none.
ALTER TABLE solid_queue_jobs ADD COLUMN traceparent varchar;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000012', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
