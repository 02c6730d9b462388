-- Who changed what. `jobs` is how many jobs changed with this row, `total` how many with it and the rows of the same
-- action before it. The first row of an action has its filter, the others name it in `part_of`.
CREATE TABLE windlass_audit (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    created_at datetime(6) NOT NULL,
    actor varchar NOT NULL,
    via varchar NOT NULL,
    origin varchar,
    action varchar NOT NULL,
    target varchar,
    filter text,
    parameters text,
    jobs bigint,
    total bigint,
    reason text,
    operation_id bigint,
    part_of bigint
);
CREATE INDEX index_windlass_audit_on_created_at ON windlass_audit (created_at);
CREATE INDEX index_windlass_audit_on_id ON windlass_audit (id) WHERE part_of IS NULL;
CREATE INDEX index_windlass_audit_on_actor ON windlass_audit (actor, id) WHERE part_of IS NULL;
CREATE INDEX index_windlass_audit_on_action ON windlass_audit (action, id) WHERE part_of IS NULL;
CREATE INDEX index_windlass_audit_on_target ON windlass_audit (target, id) WHERE part_of IS NULL;
CREATE INDEX index_windlass_audit_on_operation ON windlass_audit (operation_id, id) WHERE part_of IS NULL;
CREATE INDEX index_windlass_audit_on_part_of ON windlass_audit (part_of, id) WHERE part_of IS NOT NULL;

-- Rows are only added. Retention deletes those that are at least 30 days old. REPLACE deletes without a trigger, so it is
-- refused as an insert.
CREATE TRIGGER windlass_audit_keep BEFORE UPDATE ON windlass_audit
BEGIN
    SELECT RAISE(ABORT, 'windlass_audit is append-only: its rows are not changed, and not deleted before they are 30 days old');
END;
CREATE TRIGGER windlass_audit_keep_all BEFORE DELETE ON windlass_audit
WHEN OLD.created_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', '-30 days')
BEGIN
    SELECT RAISE(ABORT, 'windlass_audit is append-only: its rows are not changed, and not deleted before they are 30 days old');
END;
CREATE TRIGGER windlass_audit_keep_each BEFORE INSERT ON windlass_audit
WHEN EXISTS (SELECT 1 FROM windlass_audit WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'windlass_audit is append-only: its rows are not changed, and not deleted before they are 30 days old');
END;

-- Changes of many jobs, which any process carries on in batches. `bounds` has the executions up to which jobs are selected,
-- `place` how far they were, and `counts` what became of them, all as JSON.
CREATE TABLE windlass_operations (
    id integer PRIMARY KEY AUTOINCREMENT NOT NULL,
    action varchar NOT NULL,
    parameters text NOT NULL,
    filter text NOT NULL,
    bounds text NOT NULL,
    place text NOT NULL,
    counts text NOT NULL,
    total bigint,
    total_is_exact boolean NOT NULL,
    looked_at bigint NOT NULL DEFAULT 0,
    changed bigint NOT NULL DEFAULT 0,
    state varchar NOT NULL,
    error text,
    actor varchar NOT NULL,
    via varchar NOT NULL,
    origin varchar,
    reason text,
    audit_id bigint,
    created_at datetime(6) NOT NULL,
    started_at datetime(6),
    moved_at datetime(6) NOT NULL,
    ended_at datetime(6)
);
CREATE INDEX index_windlass_operations_on_open ON windlass_operations (id) WHERE ended_at IS NULL;
CREATE INDEX index_windlass_operations_on_ended_at ON windlass_operations (ended_at) WHERE ended_at IS NOT NULL;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000009', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
