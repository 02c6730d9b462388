-- The classes that workers perform, and which fields of their arguments are
-- secret (a JSON array of names): each worker writes its own when it starts.
CREATE TABLE windlass_classes (
    class_name varchar PRIMARY KEY,
    queue_name varchar NOT NULL,
    redact text NOT NULL,
    seen_at timestamp(6) NOT NULL
);

-- Finds the jobs that were cancelled or discarded; other attempts pay nothing.
CREATE INDEX index_windlass_attempts_on_outcome ON windlass_attempts (outcome, id) WHERE outcome IN ('cancelled', 'discarded');

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000013', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
