-- What ended, as each process has added it up since its heartbeat before, until a supervisor adds it to `windlass_stats`.
-- A row without data was added, and stays for a while: a process may repeat an insert that got no answer.
CREATE TABLE windlass_stats_deltas (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    source varchar,
    seq bigint,
    created_at datetime(6) NOT NULL,
    data blob
);
CREATE UNIQUE INDEX index_windlass_stats_deltas_on_source ON windlass_stats_deltas (source, seq);
CREATE INDEX index_windlass_stats_deltas_for_fold ON windlass_stats_deltas (id) WHERE data IS NOT NULL;

-- The series: a queue and a class, a queue with an empty class for several classes, and both empty for everything.
-- `total` only grows. `folded_at` of the last one is when something was last added up.
CREATE TABLE windlass_stats_series (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    queue_name varchar NOT NULL,
    class_name varchar NOT NULL,
    folded_at datetime(6) NOT NULL,
    total blob NOT NULL
);
CREATE UNIQUE INDEX index_windlass_stats_series_on_names ON windlass_stats_series (queue_name, class_name);

-- The buckets of a series, packed: 30 minutes, 24 times ten minutes, or 12 hours in a row. `resolution` is the length of
-- a bucket in seconds, `starts_at` the start of the first one in seconds since 1970.
CREATE TABLE windlass_stats (
    series_id bigint NOT NULL,
    resolution integer NOT NULL,
    starts_at bigint NOT NULL,
    data blob NOT NULL,
    PRIMARY KEY (series_id, resolution, starts_at)
);

-- Since when the job had been ready, by the database's clock.
ALTER TABLE solid_queue_claimed_executions ADD COLUMN ready_at datetime(6);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000008', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
