INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000007', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
