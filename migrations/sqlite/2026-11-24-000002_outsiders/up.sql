INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000002', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
