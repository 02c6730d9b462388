-- Events that were emitted, by their names.
CREATE TABLE windlass_events (
    name varchar PRIMARY KEY NOT NULL,
    payload text NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE INDEX windlass_events_on_created_at ON windlass_events (created_at);

-- Jobs that wait for an event: at which step, since which claim, and until when.
CREATE TABLE windlass_waits (
    job_id bigint PRIMARY KEY NOT NULL,
    claim_id bigint NOT NULL,
    step varchar NOT NULL,
    event_name varchar NOT NULL,
    timeout_at datetime(6) NOT NULL,
    created_at datetime(6) NOT NULL
);
CREATE INDEX windlass_waits_on_event ON windlass_waits (event_name);
CREATE INDEX windlass_waits_on_timeout_at ON windlass_waits (timeout_at);

-- A job that is replaced by SQL is placed anew, waits no longer, and what undoes its steps runs.
CREATE TRIGGER windlass_place_job_v1_wait INSTEAD OF INSERT ON windlass_place_job_v1
BEGIN
    DELETE FROM windlass_waits WHERE job_id = NEW.id;
    DELETE FROM windlass_edges WHERE child_job_id = NEW.id AND otherwise = 'join';
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'after', w.child_job_id FROM windlass_edges w
    WHERE w.parent_job_id = NEW.id AND w.runs_on = 'failure' AND w.otherwise = 'undo';
    UPDATE windlass_edges SET runs_on = 'finish', outcome = 'failed'
    WHERE parent_job_id = NEW.id AND runs_on = 'failure' AND otherwise = 'undo';
END;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261125000004', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
