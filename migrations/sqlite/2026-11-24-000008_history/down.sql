ALTER TABLE solid_queue_claimed_executions DROP COLUMN ready_at;
DROP TABLE windlass_stats;
DROP TABLE windlass_stats_series;
DROP TABLE windlass_stats_deltas;
DELETE FROM windlass_schema_migrations WHERE version = '20261124000008';
