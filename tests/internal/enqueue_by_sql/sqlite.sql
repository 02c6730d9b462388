------------------------------------------------------------------------------------------------------------------------
-- Enqueues by SQL
------------------------------------------------------------------------------------------------------------------------

-- For programs in any language, in the caller's own transaction: a row inserted into the view
-- windlass_enqueue is a job, and one inserted into windlass_enqueue_many is a list of jobs of one class. Both follow the
-- rules of Rust's enqueue. What a name with _v2 means will not change.
--
-- SQLite returns nothing from such an insert: a job is found by its unique id or idempotency key.
--
-- From here on, this file is made of tests/internal/enqueue_by_sql/sqlite.sql and the constants of Rust: a test
-- compares them.

CREATE VIEW IF NOT EXISTS windlass_enqueue_v2 AS SELECT {view columns} WHERE false;

CREATE VIEW IF NOT EXISTS windlass_enqueue AS SELECT * FROM windlass_enqueue_v2;

CREATE VIEW IF NOT EXISTS windlass_enqueue_many_v2 AS SELECT NULL AS class, NULL AS jobs WHERE false;

CREATE VIEW IF NOT EXISTS windlass_enqueue_many AS SELECT * FROM windlass_enqueue_many_v2;

-- What follows is called by the triggers alone: an insert into one of these views is a call of its trigger.
CREATE VIEW IF NOT EXISTS windlass_named_job_v2 AS SELECT {checked columns},
    NULL AS known, NULL AS holds, NULL AS holder, NULL AS place WHERE false;

CREATE VIEW IF NOT EXISTS windlass_place_job_v2 AS SELECT NULL AS id, NULL AS is_behind, NULL AS after_batch, NULL AS runs_on WHERE false;

CREATE VIEW IF NOT EXISTS windlass_place_jobs_v2 AS SELECT NULL AS after_id, NULL AS up_to WHERE false;

CREATE VIEW IF NOT EXISTS windlass_take_places_v2 AS SELECT NULL AS job_id, NULL AS quota, NULL AS limits WHERE false;

-- Takes places for a new job in the quota of its class, as Rust does. One that exceeds the quota is refused, also where Rust
-- would discard it.
CREATE TRIGGER IF NOT EXISTS windlass_take_places_v2_insert INSTEAD OF INSERT ON windlass_take_places_v2
BEGIN
{take places}
    INSERT INTO windlass_quota_jobs (job_id, quota, slot) SELECT NEW.job_id, NEW.quota, 0 WHERE NEW.limits ->> '$.waiting' IS NOT NULL;
END;

CREATE TRIGGER IF NOT EXISTS windlass_enqueue_v2_insert INSTEAD OF INSERT ON windlass_enqueue_v2
BEGIN
    SELECT {refuse NEW.};
    SELECT {refuse unknown class};
    INSERT INTO solid_queue_jobs ({plain names}) SELECT {plain values}
    WHERE NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    SELECT CASE WHEN NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL AND changes() = 0
        THEN RAISE(ABORT, 'cannot enqueue the job: a trigger of solid_queue_jobs ignores it') END;
    INSERT INTO windlass_place_job_v2 SELECT last_insert_rowid(), NULL, NEW.after_batch, NEW.runs_on
    WHERE NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    INSERT INTO windlass_take_places_v2 SELECT last_insert_rowid(), c.quota ->> '$.name', c.quota -> '$.limits'
    FROM windlass_classes AS c WHERE c.class_name = NEW.class AND c.quota IS NOT NULL AND NEW.after_batch IS NULL
    AND NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    INSERT INTO windlass_named_job_v2 SELECT {checked values}, known.id, names.job_id,
        CASE WHEN {holds names.scope names.place} THEN names.job_id
            WHEN {holds names.scope names.after_place} THEN names.after_job_id END,
        CASE WHEN {holds names.scope names.place} THEN names.place
            WHEN {holds names.scope names.after_place} THEN names.after_place END
    FROM (SELECT 1) AS one
    LEFT JOIN (SELECT id FROM solid_queue_jobs WHERE idempotency_key = NEW.idempotency_key) AS known
    LEFT JOIN (SELECT u.job_id, u.scope, u.after_job_id, {place of u.job_id} AS place, {place of u.after_job_id} AS after_place
        FROM windlass_unique_jobs AS u WHERE u.unique_id = NEW.unique_id) AS names
    WHERE NEW.unique_id IS NOT NULL OR NEW.idempotency_key IS NOT NULL OR NEW.concurrency_key IS NOT NULL;
END;

-- Makes a job ready, scheduled or blocked; is_behind: it waits until another job has ended, after_batch: until a batch is over.
-- A new job joins its batch, whose total a promotion raises.
CREATE TRIGGER IF NOT EXISTS windlass_place_job_v2_insert INSTEAD OF INSERT ON windlass_place_job_v2
BEGIN
    {expire j} AND j.id = NEW.id
    AND NOT EXISTS (SELECT 1 FROM windlass_expiries AS e WHERE e.job_id = NEW.id);
    INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
    SELECT id, queue_name, priority, class_name, {cautious}, updated_at FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND concurrency_key IS NULL AND gate IS NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at);
    INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
    SELECT id, queue_name, priority, scheduled_at, updated_at FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND scheduled_at > updated_at;
    INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at)
    SELECT id, queue_name, CASE WHEN NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND concurrency_conflict = '{ordered}' THEN {in_order} ELSE priority END,
        CASE WHEN NEW.is_behind THEN '{unique_successor}' WHEN NEW.after_batch IS NOT NULL THEN '{waits for parents}'
            WHEN gate IS NOT NULL THEN '{waits at gate}' ELSE concurrency_key END,
        CASE WHEN NEW.is_behind IS NULL AND NEW.after_batch IS NULL THEN gate END,
        CASE WHEN NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND gate IS NULL AND concurrency_conflict = 'discard' AND last_claim_id IS NULL
            THEN '{does_not_wait}' ELSE '{never_expires}' END, updated_at
    FROM solid_queue_jobs WHERE id = NEW.id
    AND (NEW.is_behind OR NEW.after_batch IS NOT NULL OR coalesce(concurrency_key, gate) IS NOT NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at));
    INSERT INTO windlass_wanted_keys (key) SELECT concurrency_key FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at)
    AND gate IS NULL AND concurrency_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key = concurrency_key);
    INSERT INTO windlass_wanted_keys (kind, name) SELECT '{gate}', gate FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND NEW.after_batch IS NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at)
    AND gate IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.kind = '{gate}' AND w.name = gate);
    INSERT INTO windlass_wanted_keys (kind, target_id, amount) SELECT '{batch}', batch_id, 1 FROM solid_queue_jobs WHERE id = NEW.id
    AND batch_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batch_executions AS e WHERE e.job_id = NEW.id);
    INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) SELECT id, batch_id, updated_at FROM solid_queue_jobs
    WHERE id = NEW.id AND batch_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batch_executions AS e WHERE e.job_id = NEW.id);
    INSERT INTO windlass_edges (child_job_id, parent_batch_id, runs_on, otherwise, created_at)
    SELECT NEW.id, NEW.after_batch, coalesce(NEW.runs_on, 'success'), 'discard', {now} WHERE NEW.after_batch IS NOT NULL;
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT '{batch}', NEW.after_batch WHERE NEW.after_batch IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys AS w WHERE w.kind = '{batch}' AND w.target_id = NEW.after_batch AND w.amount IS NULL);
END;

-- A job that is replaced by SQL is placed anew, waits no longer, and what undoes its steps runs.
CREATE TRIGGER IF NOT EXISTS windlass_place_job_v2_wait INSTEAD OF INSERT ON windlass_place_job_v2
BEGIN
    DELETE FROM windlass_waits WHERE job_id = NEW.id;
    DELETE FROM windlass_edges WHERE child_job_id = NEW.id AND otherwise = 'join';
    INSERT INTO windlass_wanted_keys (kind, target_id) SELECT 'after', w.child_job_id FROM windlass_edges w
    WHERE w.parent_job_id = NEW.id AND w.runs_on = 'failure' AND w.otherwise = 'undo';
    UPDATE windlass_edges SET runs_on = 'finish', outcome = 'failed'
    WHERE parent_job_id = NEW.id AND runs_on = 'failure' AND otherwise = 'undo';
END;

-- Inserts a job that has a unique id, a key or a limit. The job that holds its unique id is holder, at a place: 0 ready,
-- 1 scheduled, 2 blocked, 3 claimed, 4 ended with a result that is kept.
CREATE TRIGGER IF NOT EXISTS windlass_named_job_v2_insert INSTEAD OF INSERT ON windlass_named_job_v2
BEGIN
    SELECT CASE WHEN NEW.known IS NULL AND NEW.holder IS NOT NULL AND NEW.on_conflict = 'refuse'
        THEN RAISE(ABORT, 'cannot enqueue the job: another job holds its unique_id')
        WHEN {replaces NEW.place <= 2} AND EXISTS (SELECT 1 FROM solid_queue_jobs AS j
            JOIN windlass_classes AS c ON c.class_name = j.class_name WHERE j.id = NEW.holder AND c.internal)
        THEN RAISE(ABORT, 'cannot enqueue the job: a job of an internal class holds its unique_id') END;
    INSERT INTO solid_queue_jobs ({names}) SELECT {values}
    WHERE {inserts};
    SELECT CASE WHEN {inserts} AND changes() = 0 THEN RAISE(ABORT, 'cannot enqueue the job: a trigger of solid_queue_jobs ignores it') END;
    INSERT INTO windlass_place_job_v2 SELECT last_insert_rowid(), CASE WHEN NEW.holder IS NOT NULL THEN 1 END, NEW.after_batch, NEW.runs_on
    WHERE {inserts};
    INSERT INTO windlass_take_places_v2 SELECT last_insert_rowid(), c.quota ->> '$.name', c.quota -> '$.limits'
    FROM windlass_classes AS c WHERE c.class_name = NEW.class AND c.quota IS NOT NULL AND NEW.after_batch IS NULL AND {inserts};
    DELETE FROM windlass_unique_jobs WHERE unique_id = NEW.unique_id AND {inserts};
    INSERT INTO windlass_unique_jobs (unique_id, job_id, scope, after_job_id)
    SELECT NEW.unique_id, last_insert_rowid(), NEW.unique_scope, NEW.holder WHERE NEW.unique_id IS NOT NULL AND {inserts};

    -- Replaces a waiting job, which keeps only its id. What waits for another job to end stays blocked.
    UPDATE windlass_unique_jobs SET job_id = NEW.holder, scope = NEW.unique_scope,
        after_job_id = CASE WHEN NEW.holder = NEW.holds THEN after_job_id END
    WHERE unique_id = NEW.unique_id AND {replaces NEW.place <= 2};
    UPDATE solid_queue_jobs SET {assignments}, attempts = 0, crash_count = 0, updated_at = {now}
    WHERE id = NEW.holder AND {replaces NEW.place <= 2};
    DELETE FROM windlass_attempts WHERE job_id = NEW.holder AND {replaces NEW.place <= 2}
    -- The newest stay, and those of released runs are counted by themselves.
    AND id <= (SELECT older.id FROM windlass_attempts AS older WHERE older.job_id = NEW.holder
        AND (older.outcome = 'released') = (windlass_attempts.outcome = 'released') ORDER BY older.id DESC LIMIT 1 OFFSET {kept_attempts});
    DELETE FROM windlass_expiries WHERE job_id = NEW.holder AND {replaces NEW.place <= 2};
    {expire j} AND j.id = NEW.holder AND {replaces NEW.place <= 2};
    DELETE FROM windlass_steps WHERE job_id = NEW.holder AND {replaces NEW.place <= 2};
    UPDATE solid_queue_blocked_executions SET queue_name = NEW.queue, priority = NEW.priority WHERE job_id = NEW.holder
    AND concurrency_key = '{unique_successor}' AND {replaces NEW.place = 2};
    DELETE FROM solid_queue_ready_executions WHERE job_id = NEW.holder
    AND {replaces NEW.place = 0};
    DELETE FROM solid_queue_scheduled_executions WHERE job_id = NEW.holder
    AND {replaces NEW.place = 1};
    -- Others of an ordered key may wait behind one with a rate.
    INSERT INTO windlass_wanted_keys (key) SELECT substr(gate, instr(gate, char(30)) + 1) FROM solid_queue_blocked_executions
    WHERE job_id = NEW.holder AND instr(gate, char(30)) > 0 AND NEW.known IS NULL AND NEW.place = 2 AND NEW.on_conflict = 'replace';
    DELETE FROM solid_queue_blocked_executions WHERE job_id = NEW.holder AND concurrency_key <> '{unique_successor}'
    AND {replaces NEW.place = 2};
    INSERT INTO windlass_place_job_v2 (id) SELECT NEW.holder
    WHERE {replaces NEW.place <= 2}
    AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = NEW.holder);
END;

CREATE TRIGGER IF NOT EXISTS windlass_enqueue_insert INSTEAD OF INSERT ON windlass_enqueue
BEGIN
    INSERT INTO windlass_enqueue_v2 SELECT {view values};
END;

-- Jobs without name and limit are inserted at once, others one by one.
CREATE TRIGGER IF NOT EXISTS windlass_enqueue_many_v2_insert INSTEAD OF INSERT ON windlass_enqueue_many_v2
BEGIN
    SELECT {refuse class};
    SELECT {refuse unknown class};
    SELECT CASE WHEN NEW.jobs IS NULL OR NOT json_valid(NEW.jobs) THEN RAISE(ABORT, 'cannot enqueue the jobs: they are not JSON')
        WHEN {nul in jobs} THEN RAISE(ABORT, 'cannot enqueue the jobs: they contain a NUL character')
        WHEN json_type(NEW.jobs) <> 'array' THEN RAISE(ABORT, 'cannot enqueue the jobs: they are not a JSON array of objects') END;
    SELECT CASE WHEN e.type <> 'object' THEN RAISE(ABORT, 'cannot enqueue the jobs: one of the list is not an object')
        WHEN (SELECT max({is wrong}) OR count(*) <> count(DISTINCT f.key) FROM json_each(e.value) AS f)
        THEN coalesce((SELECT {refuse key} FROM json_each(e.value) AS f WHERE {is wrong}),
            RAISE(ABORT, 'cannot enqueue the jobs: one of the list names a key twice')) END
    FROM json_each(NEW.jobs) AS e;
    SELECT {refuse r.} FROM (WITH e AS MATERIALIZED (SELECT value FROM json_each(NEW.jobs)) SELECT {record columns} FROM e) AS r
    WHERE NOT ({is named});
    INSERT INTO solid_queue_jobs ({plain names}) SELECT {record values}
    FROM (WITH e AS MATERIALIZED (SELECT key, value FROM json_each(NEW.jobs)) SELECT key AS place, {record columns} FROM e) AS r
    WHERE NOT ({is named}) ORDER BY r.place;
    SELECT CASE WHEN NOT ({is named}) AND changes() <> json_array_length(NEW.jobs)
        THEN RAISE(ABORT, 'cannot enqueue the jobs: a trigger of solid_queue_jobs ignores one') END;
    INSERT INTO windlass_place_jobs_v2 SELECT last_insert_rowid() - json_array_length(NEW.jobs), last_insert_rowid()
    WHERE json_array_length(NEW.jobs) > 0 AND NOT ({is named});
    INSERT INTO windlass_enqueue_v2 (class, {keys bare}) SELECT NEW.class, {record columns bare}
    FROM json_each(NEW.jobs) AS e WHERE {is named} ORDER BY e.key;
END;

-- Jobs of one class that differ in their arguments alone: a JSON array of texts, each of which is JSON. The options are a job of
-- a list without arguments, and count for each of them.
CREATE VIEW IF NOT EXISTS windlass_enqueue_each_v2 AS SELECT NULL AS class, NULL AS arguments, NULL AS options WHERE false;

CREATE TRIGGER IF NOT EXISTS windlass_enqueue_each_v2_insert INSTEAD OF INSERT ON windlass_enqueue_each_v2
BEGIN
    SELECT {refuse class};
    SELECT {refuse unknown class};
    SELECT CASE WHEN NEW.arguments IS NULL OR NOT json_valid(NEW.arguments) THEN RAISE(ABORT, 'cannot enqueue the jobs: their arguments are not JSON')
        WHEN instr(NEW.arguments, char(0)) OR instr(NEW.options, char(0)) THEN RAISE(ABORT, 'cannot enqueue the jobs: they contain a NUL character')
        WHEN json_type(NEW.arguments) <> 'array' THEN RAISE(ABORT, 'cannot enqueue the jobs: their arguments are not a JSON array of texts')
        WHEN NEW.options IS NOT NULL AND NOT json_valid(NEW.options) THEN RAISE(ABORT, 'cannot enqueue the jobs: their options are not JSON')
        WHEN json_type(NEW.options) <> 'object' THEN RAISE(ABORT, 'cannot enqueue the jobs: their options are not an object') END;
    SELECT CASE WHEN (SELECT max({is wrong} OR f.key = 'arguments') OR count(*) <> count(DISTINCT f.key) FROM json_each(e.value) AS f)
        THEN coalesce((SELECT {refuse key} FROM json_each(e.value) AS f WHERE {is wrong} OR f.key = 'arguments'),
            RAISE(ABORT, 'cannot enqueue the jobs: their options name a key twice')) END
    FROM (SELECT coalesce(NEW.options, '{braces}') AS value) AS e;
    SELECT {refuse r. options} FROM (WITH e AS MATERIALIZED (SELECT coalesce(NEW.options, '{braces}') AS value) SELECT {record columns} FROM e) AS r;
    SELECT RAISE(ABORT, 'cannot enqueue the jobs: their options name one job: enqueue it alone, or use a list')
    WHERE json_array_length(NEW.arguments) > 1 AND (json_type(NEW.options, '$.unique_id') IS NOT NULL OR json_type(NEW.options, '$.idempotency_key') IS NOT NULL);
    -- Most arguments need no look at each.
    SELECT CASE WHEN t.type <> 'text' THEN RAISE(ABORT, 'cannot enqueue the jobs: their arguments are not a JSON array of texts')
        ELSE {refuse arguments t.value} END FROM json_each(NEW.arguments) AS t
    WHERE (SELECT {is special} FROM json_each(NEW.arguments) AS s) OR t.type <> 'text' OR NOT json_valid(t.value);
    INSERT INTO solid_queue_jobs ({plain names})
    WITH e AS MATERIALIZED (SELECT coalesce(NEW.options, '{braces}') AS value), r AS MATERIALIZED (SELECT {record columns} FROM e),
    v ({plain names}) AS MATERIALIZED (SELECT {record values} FROM r)
    SELECT {each values} FROM json_each(NEW.arguments) AS t CROSS JOIN v WHERE NOT ({is complex}) ORDER BY t.key;
    SELECT CASE WHEN NOT ({is complex}) AND changes() <> json_array_length(NEW.arguments)
        THEN RAISE(ABORT, 'cannot enqueue the jobs: a trigger of solid_queue_jobs ignores one') END;
    INSERT INTO windlass_place_jobs_v2 SELECT last_insert_rowid() - json_array_length(NEW.arguments), last_insert_rowid()
    WHERE json_array_length(NEW.arguments) > 0 AND NOT ({is complex});
    INSERT INTO windlass_enqueue_v2 (class, {keys bare}) SELECT NEW.class, {record columns each}
    FROM json_each(NEW.arguments) AS t, (SELECT coalesce(NEW.options, '{braces}') AS value) AS e WHERE {is complex} ORDER BY t.key;
END;

-- Makes new jobs without name and limit ready or scheduled.
CREATE TRIGGER IF NOT EXISTS windlass_place_jobs_v2_insert INSTEAD OF INSERT ON windlass_place_jobs_v2
BEGIN
    {expire j} AND j.id > NEW.after_id AND j.id <= NEW.up_to ORDER BY j.id;
    INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
    SELECT id, queue_name, priority, class_name, {cautious}, created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND gate IS NULL AND (scheduled_at IS NULL OR scheduled_at <= created_at) ORDER BY id;
    INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at)
    SELECT id, queue_name, priority, '{waits at gate}', gate, '{never_expires}', created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND gate IS NOT NULL AND (scheduled_at IS NULL OR scheduled_at <= created_at) ORDER BY id;
    INSERT INTO windlass_wanted_keys (kind, name) SELECT DISTINCT '{gate}', gate FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND gate IS NOT NULL AND (scheduled_at IS NULL OR scheduled_at <= created_at);
    INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
    SELECT id, queue_name, priority, scheduled_at, created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND scheduled_at > created_at ORDER BY id;
    INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) SELECT id, batch_id, created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND batch_id IS NOT NULL ORDER BY id;
    INSERT INTO windlass_wanted_keys (kind, target_id, amount) SELECT '{batch}', batch_id, count(*) FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND batch_id IS NOT NULL GROUP BY batch_id;
END;

CREATE TRIGGER IF NOT EXISTS windlass_enqueue_many_insert INSTEAD OF INSERT ON windlass_enqueue_many
BEGIN
    INSERT INTO windlass_enqueue_many_v2 VALUES (NEW.class, NEW.jobs);
END;

-- Emits an event, as Rust does: jobs that wait for it run again, with its payload. An event stays: emitted once more with the
-- same payload it changes nothing, and another payload is refused.
CREATE VIEW IF NOT EXISTS windlass_events_emit AS SELECT NULL AS name, NULL AS payload WHERE false;

CREATE TRIGGER IF NOT EXISTS windlass_events_emit_insert INSTEAD OF INSERT ON windlass_events_emit
BEGIN
    SELECT {refuse event};
    SELECT RAISE(ABORT, 'cannot emit the event: it was emitted before, with another payload; events stay: use a name that is new')
    FROM windlass_events AS first WHERE first.name = NEW.name AND first.payload <> coalesce(NEW.payload, 'null')
    AND (EXISTS (SELECT fullkey, type, atom FROM json_tree(first.payload)
            EXCEPT SELECT fullkey, type, atom FROM json_tree(coalesce(NEW.payload, 'null')))
        OR EXISTS (SELECT fullkey, type, atom FROM json_tree(coalesce(NEW.payload, 'null'))
            EXCEPT SELECT fullkey, type, atom FROM json_tree(first.payload)));
    INSERT INTO windlass_events (name, payload, created_at) SELECT NEW.name, coalesce(NEW.payload, 'null'), {now}
    WHERE NOT EXISTS (SELECT 1 FROM windlass_events AS e WHERE e.name = NEW.name);
    -- Also for an event that was there: another program may have deleted the request.
    INSERT INTO windlass_wanted_keys (kind, name) SELECT '{event}', NEW.name
    WHERE NOT EXISTS (SELECT 1 FROM windlass_wanted_keys AS w WHERE w.kind = '{event}' AND w.name = NEW.name);
END;

-- Opens a batch, to which the same transaction adds jobs by their batch_id: the largest id in solid_queue_batches. Without jobs,
-- it is over at the commit.
CREATE VIEW IF NOT EXISTS windlass_open_batch AS SELECT NULL AS name, NULL AS metadata WHERE false;

CREATE TRIGGER IF NOT EXISTS windlass_open_batch_insert INSTEAD OF INSERT ON windlass_open_batch
BEGIN
    SELECT {refuse batch};
    INSERT INTO solid_queue_batches (active_job_batch_id, description, metadata, enqueued_at, created_at, updated_at)
    VALUES ('windlass-' || lower(hex(randomblob(16))), NEW.name, NEW.metadata, {now}, {now}, {now});
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('{batch}', last_insert_rowid());
END;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('{version}', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
