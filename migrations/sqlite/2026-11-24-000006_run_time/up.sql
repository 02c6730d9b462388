-- Limits of concurrency keys that were set at run time. `limit_key` is a key, or
-- a group with `/*` for all its keys; `slots` replaces the limit of their jobs.
CREATE TABLE windlass_limits (
    limit_key varchar PRIMARY KEY NOT NULL,
    slots integer NOT NULL,
    set_by varchar,
    reason text,
    created_at datetime(6) NOT NULL
);

-- The classes of which no worker of Windlass starts a job.
CREATE TABLE windlass_class_pauses (
    class_name varchar PRIMARY KEY NOT NULL,
    paused_by varchar,
    pause_reason text,
    created_at datetime(6) NOT NULL
);

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000006', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
