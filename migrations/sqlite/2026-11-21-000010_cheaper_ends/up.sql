-- Nothing to change: on SQLite a foreign key is looked up within the program,
-- and costs a job that is deleted less than a microsecond.
INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000010', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
