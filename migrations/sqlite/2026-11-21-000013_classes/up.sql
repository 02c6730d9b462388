-- The classes that workers perform, and which fields of their arguments are
-- secret (a JSON array of names): each worker writes its own when it starts.
CREATE TABLE windlass_classes (
    class_name varchar PRIMARY KEY NOT NULL,
    queue_name varchar NOT NULL,
    redact text NOT NULL,
    seen_at datetime(6) NOT NULL
);

-- Finds the jobs that were cancelled or discarded; other attempts pay nothing.
CREATE INDEX index_windlass_attempts_on_outcome ON windlass_attempts (outcome, id) WHERE outcome IN ('cancelled', 'discarded');

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261121000013', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
