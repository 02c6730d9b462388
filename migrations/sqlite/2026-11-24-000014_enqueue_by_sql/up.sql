-- Enqueues by SQL, for programs in any language, in the caller's own transaction: a row inserted into the view
-- windlass_enqueue is a job, and one inserted into windlass_enqueue_many is a list of jobs of one class. Both follow the
-- rules of Rust's enqueue. What a name with _v1 means will not change.
--
-- SQLite returns nothing from such an insert: a job is found by its unique id or idempotency key.
--
-- This file is made of tests/internal/enqueue_by_sql/sqlite.sql and the constants of Rust, and a test compares them.

-- Settings that programs in all languages share, as strict_classes: on or off.
CREATE TABLE windlass_settings (
    name varchar PRIMARY KEY NOT NULL,
    value varchar NOT NULL
);

CREATE VIEW windlass_enqueue_v1 AS SELECT NULL AS class, NULL AS arguments, NULL AS queue, NULL AS priority, NULL AS run_at, NULL AS delay_seconds, NULL AS unique_id, NULL AS unique_scope, NULL AS on_conflict, NULL AS idempotency_key, NULL AS concurrency_key, NULL AS concurrency_group, NULL AS concurrency_limit, NULL AS concurrency_on_conflict, NULL AS max_attempts, NULL AS max_crashes, NULL AS at_most_once, NULL AS traceparent, NULL AS id, NULL AS outcome WHERE false;

CREATE VIEW windlass_enqueue AS SELECT * FROM windlass_enqueue_v1;

CREATE VIEW windlass_enqueue_many_v1 AS SELECT NULL AS class, NULL AS jobs WHERE false;

CREATE VIEW windlass_enqueue_many AS SELECT * FROM windlass_enqueue_many_v1;

-- What follows is called by the triggers alone: an insert into one of these views is a call of its trigger.
CREATE VIEW windlass_named_job_v1 AS SELECT NULL AS class, NULL AS queue, NULL AS arguments, NULL AS priority, NULL AS due_at, NULL AS delay, NULL AS unique_id, NULL AS unique_scope, NULL AS on_conflict, NULL AS idempotency_key, NULL AS concurrency_key, NULL AS concurrency_slots, NULL AS concurrency_conflict, NULL AS max_attempts, NULL AS max_crashes, NULL AS at_most_once, NULL AS traceparent, NULL AS policy,
    NULL AS known, NULL AS holds, NULL AS holder, NULL AS place WHERE false;

CREATE VIEW windlass_place_job_v1 AS SELECT NULL AS id, NULL AS is_behind WHERE false;

CREATE VIEW windlass_place_jobs_v1 AS SELECT NULL AS after_id, NULL AS up_to WHERE false;

CREATE VIEW windlass_take_places_v1 AS SELECT NULL AS job_id, NULL AS quota, NULL AS limits WHERE false;

-- Takes places for a new job in the quota of its class, as Rust does. One that exceeds the quota is refused, also where Rust
-- would discard it.
CREATE TRIGGER windlass_take_places_v1_insert INSTEAD OF INSERT ON windlass_take_places_v1
BEGIN
    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
    SELECT NEW.quota, 'day', 0, strftime('%Y-%m-%d 00:00:00.000000', 'now'), 0, NEW.limits WHERE NEW.limits ->> '$.per_day' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'day' AND slot = 0 AND NEW.limits ->> '$.per_day' IS NOT NULL);
    SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more enqueues per day; try again later')
    FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'day' AND slot = 0 AND NEW.limits ->> '$.per_day' IS NOT NULL AND CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-86400000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1 > NEW.limits ->> '$.per_day';
    UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-86400000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1, starts_at = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-86400000000 / 1000000.0) || ' seconds') THEN starts_at ELSE strftime('%Y-%m-%d 00:00:00.000000', 'now') END, limits = NEW.limits WHERE quota = NEW.quota AND per = 'day' AND slot = 0 AND NEW.limits ->> '$.per_day' IS NOT NULL;
    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
    SELECT NEW.quota, 'minute', 0, strftime('%Y-%m-%d %H:%M:00.000000', 'now'), 0, NEW.limits WHERE NEW.limits ->> '$.per_minute' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'minute' AND slot = 0 AND NEW.limits ->> '$.per_minute' IS NOT NULL);
    SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more enqueues per minute; try again later')
    FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'minute' AND slot = 0 AND NEW.limits ->> '$.per_minute' IS NOT NULL AND CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-60000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1 > NEW.limits ->> '$.per_minute';
    UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-60000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1, starts_at = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-60000000 / 1000000.0) || ' seconds') THEN starts_at ELSE strftime('%Y-%m-%d %H:%M:00.000000', 'now') END, limits = NEW.limits WHERE quota = NEW.quota AND per = 'minute' AND slot = 0 AND NEW.limits ->> '$.per_minute' IS NOT NULL;
    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
    SELECT NEW.quota, 'second', 0, strftime('%Y-%m-%d %H:%M:%S.000000', 'now'), 0, NEW.limits WHERE NEW.limits ->> '$.per_second' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'second' AND slot = 0 AND NEW.limits ->> '$.per_second' IS NOT NULL);
    SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more enqueues per second; try again later')
    FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'second' AND slot = 0 AND NEW.limits ->> '$.per_second' IS NOT NULL AND CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-1000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1 > NEW.limits ->> '$.per_second';
    UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-1000000 / 1000000.0) || ' seconds') THEN jobs ELSE 0 END + 1, starts_at = CASE WHEN starts_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', (-1000000 / 1000000.0) || ' seconds') THEN starts_at ELSE strftime('%Y-%m-%d %H:%M:%S.000000', 'now') END, limits = NEW.limits WHERE quota = NEW.quota AND per = 'second' AND slot = 0 AND NEW.limits ->> '$.per_second' IS NOT NULL;
    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
    SELECT NEW.quota, 'waiting', 0, strftime('%Y-%m-%d 00:00:00.000000', 'now'), 0, NEW.limits WHERE NEW.limits ->> '$.waiting' IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL);
    DELETE FROM windlass_quota_jobs WHERE quota = NEW.quota AND EXISTS (SELECT 1 FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL AND jobs + 1 > NEW.limits ->> '$.waiting')
    AND NOT EXISTS (SELECT 1 FROM solid_queue_ready_executions AS e WHERE e.job_id = windlass_quota_jobs.job_id) AND NOT EXISTS (SELECT 1 FROM solid_queue_scheduled_executions AS e WHERE e.job_id = windlass_quota_jobs.job_id) AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions AS e WHERE e.job_id = windlass_quota_jobs.job_id);
    UPDATE windlass_quota_slots SET jobs = (SELECT count(*) FROM windlass_quota_jobs WHERE quota = NEW.quota) WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL AND jobs + 1 > NEW.limits ->> '$.waiting';
    SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more waiting jobs; try again later')
    FROM windlass_quota_slots WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL AND CASE WHEN starts_at > '' THEN jobs ELSE 0 END + 1 > NEW.limits ->> '$.waiting';
    UPDATE windlass_quota_slots SET jobs = CASE WHEN starts_at > '' THEN jobs ELSE 0 END + 1, starts_at = strftime('%Y-%m-%d 00:00:00.000000', 'now'), limits = NEW.limits WHERE quota = NEW.quota AND per = 'waiting' AND slot = 0 AND NEW.limits ->> '$.waiting' IS NOT NULL;
    INSERT INTO windlass_quota_jobs (job_id, quota, slot) SELECT NEW.job_id, NEW.quota, 0 WHERE NEW.limits ->> '$.waiting' IS NOT NULL;
END;

CREATE TRIGGER windlass_enqueue_v1_insert INSTEAD OF INSERT ON windlass_enqueue_v1
BEGIN
    SELECT CASE
        WHEN NEW.class IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is missing')
        WHEN typeof(NEW.class) NOT IN ('null', 'text') OR length(CAST(NEW.class AS blob)) NOT BETWEEN 1 AND 255 OR NEW.class GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(NEW.class, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`')
        WHEN typeof(NEW.queue) NOT IN ('null', 'text') OR length(CAST(NEW.queue AS blob)) NOT BETWEEN 1 AND 255 OR NEW.queue GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(NEW.queue, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`')
        WHEN typeof(NEW.priority) NOT IN ('null', 'integer') OR NEW.priority NOT BETWEEN -2147483648 AND 2147483647
        THEN RAISE(ABORT, 'cannot enqueue the job: its priority must be an integer of 32 bits')
        WHEN typeof(NEW.arguments) NOT IN ('null', 'text') OR length(CAST(NEW.arguments AS blob)) > 65536
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments must be JSON text of at most 65536 bytes; store the data elsewhere and pass a reference')
        WHEN NEW.arguments IS NOT NULL AND NOT json_valid(NEW.arguments)
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are not JSON')
        WHEN instr(NEW.arguments, char(0)) > 0 OR instr(replace(NEW.arguments, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(NEW.arguments) - length(replace(replace(NEW.arguments, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT NEW.arguments, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN NEW.arguments GLOB '*\u[dD][89a-fA-F]*' AND (replace(NEW.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(NEW.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(NEW.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(NEW.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(NEW.arguments, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a text has half of a surrogate pair')
        WHEN (NEW.arguments GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR NEW.arguments GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(NEW.arguments) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN coalesce(NEW.run_at, NEW.delay_seconds, NEW.unique_id, NEW.unique_scope, NEW.on_conflict, NEW.idempotency_key, NEW.concurrency_key, NEW.concurrency_group, NEW.concurrency_limit, NEW.concurrency_on_conflict, NEW.max_attempts, NEW.max_crashes, NEW.at_most_once, NEW.traceparent) IS NULL THEN NULL
        WHEN typeof(NEW.idempotency_key) NOT IN ('null', 'text') OR length(CAST(NEW.idempotency_key AS blob)) NOT BETWEEN 1 AND 255 OR instr(NEW.idempotency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its idempotency_key must have 1 to 255 bytes and no NUL')
        WHEN typeof(NEW.unique_id) NOT IN ('null', 'text') OR length(CAST(NEW.unique_id AS blob)) NOT BETWEEN 1 AND 255 OR instr(NEW.unique_id, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_id must have 1 to 255 bytes and no NUL')
        WHEN NEW.unique_scope NOT IN ('while_waiting', 'until_finished', 'until_result_expires')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_scope must be one of while_waiting, until_finished, until_result_expires')
        WHEN NEW.on_conflict NOT IN ('existing', 'refuse', 'replace', 'run_again')
        THEN RAISE(ABORT, 'cannot enqueue the job: its on_conflict must be one of existing, refuse, replace, run_again')
        WHEN NEW.concurrency_on_conflict NOT IN ('block', 'discard', 'ordered')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_on_conflict must be one of block, discard, ordered')
        WHEN typeof(NEW.concurrency_key) NOT IN ('null', 'text') OR typeof(NEW.concurrency_group) NOT IN ('null', 'text') OR NEW.concurrency_key = '' OR NEW.concurrency_group = '' OR length(CAST(coalesce(NEW.concurrency_group, NEW.class) || '/' || NEW.concurrency_key AS blob)) > 255 OR instr(coalesce(NEW.concurrency_group, NEW.class) || '/' || NEW.concurrency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key and concurrency_group must not be empty, have at most 255 bytes together, and no NUL')
        WHEN NEW.concurrency_key IS NULL AND (NEW.concurrency_limit IS NOT NULL OR NEW.concurrency_group IS NOT NULL OR NEW.concurrency_on_conflict IS NOT NULL)
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key is missing, without which there is no limit')
        WHEN typeof(NEW.concurrency_limit) NOT IN ('null', 'integer') OR NEW.concurrency_limit < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_limit must be 1 or more; pause its queue to stop its jobs')
        WHEN NEW.concurrency_on_conflict = 'ordered' AND NEW.concurrency_limit <> 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency key is ordered, so its concurrency_limit must be 1')
        WHEN NEW.run_at IS NOT NULL AND NEW.delay_seconds IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it has both run_at and delay_seconds; choose one')
        WHEN NEW.run_at IS NOT NULL AND (typeof(NEW.run_at) <> 'text' OR NEW.run_at NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' OR date(substr(NEW.run_at, 1, 10), '+0 days') IS NOT substr(NEW.run_at, 1, 10) OR datetime(NEW.run_at) IS NULL OR datetime(NEW.run_at) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr(NEW.run_at, 12, 2) = '24' OR instr(NEW.run_at, char(0)) > 0 OR (length(NEW.run_at) > 10 AND substr(NEW.run_at, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') OR NOT (ltrim(substr(NEW.run_at, 12), '0123456789:.') IN ('', 'Z') OR ltrim(substr(NEW.run_at, 12), '0123456789:.') GLOB '[+-][0-9][0-9]:[0-9][0-9]'))
        THEN RAISE(ABORT, 'cannot enqueue the job: its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z')
        WHEN typeof(NEW.delay_seconds) NOT IN ('null', 'integer', 'real') OR NOT (NEW.delay_seconds >= 0 AND NEW.delay_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its delay_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(NEW.max_attempts) NOT IN ('null', 'integer') OR NEW.max_attempts < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_attempts must be an integer, 1 or more')
        WHEN typeof(NEW.max_crashes) NOT IN ('null', 'integer') OR NEW.max_crashes < 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_crashes must be an integer, 0 or more')
        WHEN NEW.at_most_once NOT IN (0, 1)
        THEN RAISE(ABORT, 'cannot enqueue the job: its at_most_once must be true or false')
        WHEN NEW.at_most_once AND NEW.max_attempts > 1
        THEN RAISE(ABORT, 'cannot enqueue the job: it has at-most-once delivery and more than one attempt; choose one')
        WHEN typeof(NEW.traceparent) NOT IN ('null', 'text') OR instr(NEW.traceparent, char(0)) > 0 OR length(CAST(NEW.traceparent AS blob)) > 255 OR substr(NEW.traceparent, 4, 32) = '00000000000000000000000000000000' OR substr(NEW.traceparent, 37, 16) = '0000000000000000' OR NEW.traceparent GLOB 'ff*' OR (NEW.traceparent GLOB '00*' AND length(NEW.traceparent) <> 55) OR (NEW.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]' AND NEW.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]-*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its traceparent is not one of W3C Trace Context; pass the header as it is, `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits') END;
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND internal)
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is internal, so only its program''s own code enqueues it')
        WHEN EXISTS (SELECT 1 FROM windlass_settings WHERE name = 'strict_classes' AND value = 'on') AND NOT EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class)
        THEN RAISE(ABORT, 'cannot enqueue the job: no worker has stored its class, and strict_classes is on; start a worker that performs it, or correct the name') END;
    INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, active_job_id, scheduled_at, created_at, updated_at) SELECT coalesce(NEW.queue, 'default'), NEW.class, coalesce(NEW.arguments, 'null'), coalesce(NEW.priority, 0), CASE WHEN NEW.max_attempts < 2147483647 THEN NEW.max_attempts WHEN NEW.max_attempts IS NOT NULL THEN 2147483647 END, CASE WHEN NEW.max_crashes < 2147483647 THEN NEW.max_crashes WHEN NEW.max_crashes IS NOT NULL THEN 2147483647 END, coalesce(NEW.at_most_once, 0), '{"unique_scope":"' || NEW.unique_scope || '"}', NEW.traceparent, NULL, coalesce(CASE WHEN instr(NEW.run_at, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.run_at) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.run_at, 1, instr(NEW.run_at, '.') - 1) || ltrim(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), 1, length(substr(NEW.run_at, instr(NEW.run_at, '.') + 1)) - length(ltrim(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), '0123456789'))) || '000000', 1, 6) END, strftime('%Y-%m-%d %H:%M:%f000', 'now', (CAST(round(NEW.delay_seconds * 1000000) AS integer) / 1000000.0) || ' seconds')), strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    SELECT CASE WHEN NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL AND changes() = 0
        THEN RAISE(ABORT, 'cannot enqueue the job: a trigger of solid_queue_jobs ignores it') END;
    INSERT INTO windlass_place_job_v1 (id) SELECT last_insert_rowid()
    WHERE NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    INSERT INTO windlass_take_places_v1 SELECT last_insert_rowid(), c.quota ->> '$.name', c.quota -> '$.limits'
    FROM windlass_classes AS c WHERE c.class_name = NEW.class AND c.quota IS NOT NULL
    AND NEW.unique_id IS NULL AND NEW.idempotency_key IS NULL AND NEW.concurrency_key IS NULL;
    INSERT INTO windlass_named_job_v1 SELECT NEW.class, coalesce(NEW.queue, 'default'), coalesce(NEW.arguments, 'null'), coalesce(NEW.priority, 0), CASE WHEN instr(NEW.run_at, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', NEW.run_at) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(NEW.run_at, 1, instr(NEW.run_at, '.') - 1) || ltrim(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), '0123456789')) || '.' || substr(substr(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), 1, length(substr(NEW.run_at, instr(NEW.run_at, '.') + 1)) - length(ltrim(substr(NEW.run_at, instr(NEW.run_at, '.') + 1), '0123456789'))) || '000000', 1, 6) END, CAST(round(NEW.delay_seconds * 1000000) AS integer), NEW.unique_id, coalesce(NEW.unique_scope, 'until_finished'), coalesce(NEW.on_conflict, 'existing'), NEW.idempotency_key, coalesce(NEW.concurrency_group, NEW.class) || '/' || NEW.concurrency_key, CASE WHEN NEW.concurrency_key IS NOT NULL THEN min(coalesce(NEW.concurrency_limit, 1), 2147483647) END, nullif(NEW.concurrency_on_conflict, 'block'), CASE WHEN NEW.max_attempts < 2147483647 THEN NEW.max_attempts WHEN NEW.max_attempts IS NOT NULL THEN 2147483647 END, CASE WHEN NEW.max_crashes < 2147483647 THEN NEW.max_crashes WHEN NEW.max_crashes IS NOT NULL THEN 2147483647 END, coalesce(NEW.at_most_once, 0), NEW.traceparent, '{"unique_scope":"' || NEW.unique_scope || '"}', known.id, names.job_id,
        CASE WHEN (names.place <= 2 OR names.place = 3 AND names.scope <> 'while_waiting' OR names.place = 4 AND names.scope = 'until_result_expires') THEN names.job_id
            WHEN (names.after_place <= 2 OR names.after_place = 3 AND names.scope <> 'while_waiting' OR names.after_place = 4 AND names.scope = 'until_result_expires') THEN names.after_job_id END,
        CASE WHEN (names.place <= 2 OR names.place = 3 AND names.scope <> 'while_waiting' OR names.place = 4 AND names.scope = 'until_result_expires') THEN names.place
            WHEN (names.after_place <= 2 OR names.after_place = 3 AND names.scope <> 'while_waiting' OR names.after_place = 4 AND names.scope = 'until_result_expires') THEN names.after_place END
    FROM (SELECT 1) AS one
    LEFT JOIN (SELECT id FROM solid_queue_jobs WHERE idempotency_key = NEW.idempotency_key) AS known
    LEFT JOIN (SELECT u.job_id, u.scope, u.after_job_id, CASE WHEN EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE job_id = u.job_id) THEN 0 WHEN EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id = u.job_id) THEN 1 WHEN EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = u.job_id) THEN 2 WHEN EXISTS (SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = u.job_id) THEN 3 WHEN EXISTS (SELECT 1 FROM windlass_results WHERE job_id = u.job_id AND expires_at > strftime('%Y-%m-%d %H:%M:%f000', 'now')) THEN 4 ELSE 5 END AS place, CASE WHEN EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE job_id = u.after_job_id) THEN 0 WHEN EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id = u.after_job_id) THEN 1 WHEN EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = u.after_job_id) THEN 2 WHEN EXISTS (SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = u.after_job_id) THEN 3 WHEN EXISTS (SELECT 1 FROM windlass_results WHERE job_id = u.after_job_id AND expires_at > strftime('%Y-%m-%d %H:%M:%f000', 'now')) THEN 4 ELSE 5 END AS after_place
        FROM windlass_unique_jobs AS u WHERE u.unique_id = NEW.unique_id) AS names
    WHERE NEW.unique_id IS NOT NULL OR NEW.idempotency_key IS NOT NULL OR NEW.concurrency_key IS NOT NULL;
END;

-- Makes a job ready, scheduled or blocked; is_behind: it waits until another job has ended.
CREATE TRIGGER windlass_place_job_v1_insert INSTEAD OF INSERT ON windlass_place_job_v1
BEGIN
    INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
    SELECT id, queue_name, priority, class_name, (at_most_once OR crash_count > 0 OR coalesce(max_crashes = 0, false)), updated_at FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND concurrency_key IS NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at);
    INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
    SELECT id, queue_name, priority, scheduled_at, updated_at FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND scheduled_at > updated_at;
    INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at)
    SELECT id, queue_name, CASE WHEN NEW.is_behind IS NULL AND concurrency_conflict = 'ordered' THEN -2147483648 ELSE priority END,
        CASE WHEN NEW.is_behind THEN ' ' ELSE concurrency_key END,
        CASE WHEN NEW.is_behind IS NULL AND concurrency_conflict = 'discard' AND last_claim_id IS NULL
            THEN '9999-12-31 00:00:00.000000' ELSE '9999-12-31 23:59:59.000000' END, updated_at
    FROM solid_queue_jobs WHERE id = NEW.id
    AND (NEW.is_behind OR concurrency_key IS NOT NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at));
    INSERT INTO windlass_wanted_keys (key) SELECT concurrency_key FROM solid_queue_jobs WHERE id = NEW.id
    AND NEW.is_behind IS NULL AND (scheduled_at IS NULL OR scheduled_at <= updated_at)
    AND concurrency_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.key = concurrency_key);
END;

-- Inserts a job that has a unique id, a key or a limit. The job that holds its unique id is holder, at a place: 0 ready,
-- 1 scheduled, 2 blocked, 3 claimed, 4 ended with a result that is kept.
CREATE TRIGGER windlass_named_job_v1_insert INSTEAD OF INSERT ON windlass_named_job_v1
BEGIN
    SELECT CASE WHEN NEW.known IS NULL AND NEW.holder IS NOT NULL AND NEW.on_conflict = 'refuse'
        THEN RAISE(ABORT, 'cannot enqueue the job: another job holds its unique_id')
        WHEN NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace' AND EXISTS (SELECT 1 FROM solid_queue_jobs AS j
            JOIN windlass_classes AS c ON c.class_name = j.class_name WHERE j.id = NEW.holder AND c.internal)
        THEN RAISE(ABORT, 'cannot enqueue the job: a job of an internal class holds its unique_id') END;
    INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, active_job_id, scheduled_at, idempotency_key, unique_id, concurrency_key, concurrency_slots, concurrency_conflict, created_at, updated_at) SELECT NEW.queue, NEW.class, NEW.arguments, NEW.priority, NEW.max_attempts, NEW.max_crashes, NEW.at_most_once, NEW.policy, NEW.traceparent, NULL, coalesce(NEW.due_at, strftime('%Y-%m-%d %H:%M:%f000', 'now', (NEW.delay / 1000000.0) || ' seconds')), NEW.idempotency_key, NEW.unique_id, NEW.concurrency_key, NEW.concurrency_slots, NEW.concurrency_conflict, strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));
    SELECT CASE WHEN NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again')) AND changes() = 0 THEN RAISE(ABORT, 'cannot enqueue the job: a trigger of solid_queue_jobs ignores it') END;
    INSERT INTO windlass_place_job_v1 SELECT last_insert_rowid(), CASE WHEN NEW.holder IS NOT NULL THEN 1 END WHERE NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));
    INSERT INTO windlass_take_places_v1 SELECT last_insert_rowid(), c.quota ->> '$.name', c.quota -> '$.limits'
    FROM windlass_classes AS c WHERE c.class_name = NEW.class AND c.quota IS NOT NULL AND NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));
    DELETE FROM windlass_unique_jobs WHERE unique_id = NEW.unique_id AND NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));
    INSERT INTO windlass_unique_jobs (unique_id, job_id, scope, after_job_id)
    SELECT NEW.unique_id, last_insert_rowid(), NEW.unique_scope, NEW.holder WHERE NEW.unique_id IS NOT NULL AND NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'));

    -- Replaces a waiting job, which keeps only its id. What waits for another job to end stays blocked.
    UPDATE windlass_unique_jobs SET job_id = NEW.holder, scope = NEW.unique_scope,
        after_job_id = CASE WHEN NEW.holder = NEW.holds THEN after_job_id END
    WHERE unique_id = NEW.unique_id AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    UPDATE solid_queue_jobs SET queue_name = NEW.queue, class_name = NEW.class, arguments = NEW.arguments, priority = NEW.priority, max_attempts = NEW.max_attempts, max_crashes = NEW.max_crashes, at_most_once = NEW.at_most_once, policy = NEW.policy, traceparent = NEW.traceparent, scheduled_at = coalesce(NEW.due_at, strftime('%Y-%m-%d %H:%M:%f000', 'now', (NEW.delay / 1000000.0) || ' seconds')), concurrency_key = NEW.concurrency_key, concurrency_slots = NEW.concurrency_slots, concurrency_conflict = NEW.concurrency_conflict, attempts = 0, crash_count = 0, updated_at = strftime('%Y-%m-%d %H:%M:%f000', 'now')
    WHERE id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    DELETE FROM windlass_attempts WHERE job_id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace'
    -- The newest stay, and those of released runs are counted by themselves.
    AND id <= (SELECT older.id FROM windlass_attempts AS older WHERE older.job_id = NEW.holder
        AND (older.outcome = 'released') = (windlass_attempts.outcome = 'released') ORDER BY older.id DESC LIMIT 1 OFFSET 20);
    DELETE FROM windlass_expiries WHERE job_id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    DELETE FROM windlass_steps WHERE job_id = NEW.holder AND NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace';
    UPDATE solid_queue_blocked_executions SET queue_name = NEW.queue, priority = NEW.priority WHERE job_id = NEW.holder
    AND concurrency_key = ' ' AND NEW.known IS NULL AND NEW.place = 2 AND NEW.on_conflict = 'replace';
    DELETE FROM solid_queue_ready_executions WHERE job_id = NEW.holder
    AND NEW.known IS NULL AND NEW.place = 0 AND NEW.on_conflict = 'replace';
    DELETE FROM solid_queue_scheduled_executions WHERE job_id = NEW.holder
    AND NEW.known IS NULL AND NEW.place = 1 AND NEW.on_conflict = 'replace';
    DELETE FROM solid_queue_blocked_executions WHERE job_id = NEW.holder AND concurrency_key <> ' '
    AND NEW.known IS NULL AND NEW.place = 2 AND NEW.on_conflict = 'replace';
    INSERT INTO windlass_place_job_v1 (id) SELECT NEW.holder
    WHERE NEW.known IS NULL AND NEW.place <= 2 AND NEW.on_conflict = 'replace'
    AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = NEW.holder);
END;

CREATE TRIGGER windlass_enqueue_insert INSTEAD OF INSERT ON windlass_enqueue
BEGIN
    INSERT INTO windlass_enqueue_v1 SELECT NEW.class, NEW.arguments, NEW.queue, NEW.priority, NEW.run_at, NEW.delay_seconds, NEW.unique_id, NEW.unique_scope, NEW.on_conflict, NEW.idempotency_key, NEW.concurrency_key, NEW.concurrency_group, NEW.concurrency_limit, NEW.concurrency_on_conflict, NEW.max_attempts, NEW.max_crashes, NEW.at_most_once, NEW.traceparent, NEW.id, NEW.outcome;
END;

-- Jobs without name and limit are inserted at once, others one by one.
CREATE TRIGGER windlass_enqueue_many_v1_insert INSTEAD OF INSERT ON windlass_enqueue_many_v1
BEGIN
    SELECT CASE
        WHEN NEW.class IS NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is missing')
        WHEN typeof(NEW.class) NOT IN ('null', 'text') OR length(CAST(NEW.class AS blob)) NOT BETWEEN 1 AND 255 OR NEW.class GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(NEW.class, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its class must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`') END;
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND internal)
        THEN RAISE(ABORT, 'cannot enqueue the job: its class is internal, so only its program''s own code enqueues it')
        WHEN EXISTS (SELECT 1 FROM windlass_settings WHERE name = 'strict_classes' AND value = 'on') AND NOT EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class)
        THEN RAISE(ABORT, 'cannot enqueue the job: no worker has stored its class, and strict_classes is on; start a worker that performs it, or correct the name') END;
    SELECT CASE WHEN NEW.jobs IS NULL OR NOT json_valid(NEW.jobs) THEN RAISE(ABORT, 'cannot enqueue the jobs: they are not JSON')
        WHEN instr(NEW.jobs, char(0)) OR instr(replace(NEW.jobs, '\\', ''), '\u0000') THEN RAISE(ABORT, 'cannot enqueue the jobs: they contain a NUL character')
        WHEN json_type(NEW.jobs) <> 'array' THEN RAISE(ABORT, 'cannot enqueue the jobs: they are not a JSON array of objects') END;
    SELECT CASE WHEN e.type <> 'object' THEN RAISE(ABORT, 'cannot enqueue the jobs: one of the list is not an object')
        WHEN (SELECT max((CASE WHEN f.key = 'arguments' THEN 0 WHEN f.key IN ('priority', 'delay_seconds', 'concurrency_limit', 'max_attempts', 'max_crashes') THEN f.type NOT IN ('integer', 'real', 'null') WHEN f.key IN ('queue', 'run_at', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_on_conflict', 'traceparent') THEN f.type NOT IN ('text', 'null') WHEN f.key IN ('at_most_once') THEN f.type NOT IN ('true', 'false', 'null') ELSE 1 END OR json_type(e.value, '$.' || f.key) IS NULL)) OR count(*) <> count(DISTINCT f.key) FROM json_each(e.value) AS f)
        THEN coalesce((SELECT CASE
        WHEN f.key = 'queue' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its queue must be a JSON string')
        WHEN f.key = 'priority' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its priority must be a JSON number')
        WHEN f.key = 'run_at' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its run_at must be a JSON string')
        WHEN f.key = 'delay_seconds' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its delay_seconds must be a JSON number')
        WHEN f.key = 'unique_id' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_id must be a JSON string')
        WHEN f.key = 'unique_scope' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_scope must be a JSON string')
        WHEN f.key = 'on_conflict' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its on_conflict must be a JSON string')
        WHEN f.key = 'idempotency_key' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its idempotency_key must be a JSON string')
        WHEN f.key = 'concurrency_key' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key must be a JSON string')
        WHEN f.key = 'concurrency_group' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_group must be a JSON string')
        WHEN f.key = 'concurrency_limit' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_limit must be a JSON number')
        WHEN f.key = 'concurrency_on_conflict' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_on_conflict must be a JSON string')
        WHEN f.key = 'max_attempts' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_attempts must be a JSON number')
        WHEN f.key = 'max_crashes' AND f.type NOT IN ('integer', 'real', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_crashes must be a JSON number')
        WHEN f.key = 'at_most_once' AND f.type NOT IN ('true', 'false', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its at_most_once must be true or false')
        WHEN f.key = 'traceparent' AND f.type NOT IN ('text', 'null')
        THEN RAISE(ABORT, 'cannot enqueue the job: its traceparent must be a JSON string')
        ELSE RAISE(ABORT, 'cannot enqueue the jobs: one of the list has a key that is no column of windlass_enqueue') END FROM json_each(e.value) AS f WHERE (CASE WHEN f.key = 'arguments' THEN 0 WHEN f.key IN ('priority', 'delay_seconds', 'concurrency_limit', 'max_attempts', 'max_crashes') THEN f.type NOT IN ('integer', 'real', 'null') WHEN f.key IN ('queue', 'run_at', 'unique_id', 'unique_scope', 'on_conflict', 'idempotency_key', 'concurrency_key', 'concurrency_group', 'concurrency_on_conflict', 'traceparent') THEN f.type NOT IN ('text', 'null') WHEN f.key IN ('at_most_once') THEN f.type NOT IN ('true', 'false', 'null') ELSE 1 END OR json_type(e.value, '$.' || f.key) IS NULL)),
            RAISE(ABORT, 'cannot enqueue the jobs: one of the list names a key twice')) END
    FROM json_each(NEW.jobs) AS e;
    SELECT CASE
        WHEN typeof(r.queue) NOT IN ('null', 'text') OR length(CAST(r.queue AS blob)) NOT BETWEEN 1 AND 255 OR r.queue GLOB '*[^a-zA-Z0-9_.:/-]*' OR instr(r.queue, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its queue must have 1 to 255 bytes, only ASCII letters, digits and `_` `.` `:` `/` `-`')
        WHEN typeof(r.priority) NOT IN ('null', 'integer') OR r.priority NOT BETWEEN -2147483648 AND 2147483647
        THEN RAISE(ABORT, 'cannot enqueue the job: its priority must be an integer of 32 bits')
        WHEN typeof(r.arguments) NOT IN ('null', 'text') OR length(CAST(r.arguments AS blob)) > 65536
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments must be JSON text of at most 65536 bytes; store the data elsewhere and pass a reference')
        WHEN instr(r.arguments, char(0)) > 0 OR instr(replace(r.arguments, '\\', ''), '\u0000') > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments contain a NUL character, which Postgres cannot keep; encode binary data')
        WHEN length(r.arguments) - length(replace(replace(r.arguments, '[', ''), '{', '')) > 120 AND ( WITH RECURSIVE level (value, depth) AS (SELECT r.arguments, 1 UNION ALL SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part WHERE part.type IN ('array', 'object') AND level.depth <= 120) SELECT max(depth) FROM level) > 120
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments are nested deeper than 120 arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference')
        WHEN r.arguments GLOB '*\u[dD][89a-fA-F]*' AND (replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F][^\]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\[^u]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[^dD]*' OR replace(r.arguments, '\\', '//') GLOB '*\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][^c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^89abAB][0-9a-fA-F][0-9a-fA-F]\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^dD]???\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^u]????\u[dD][c-fC-F]*' OR replace(r.arguments, '\\', '//') GLOB '*[^\]?????\u[dD][c-fC-F]*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a text has half of a surrogate pair')
        WHEN (r.arguments GLOB '*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*' OR r.arguments GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree(r.arguments) AS part WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))
        THEN RAISE(ABORT, 'cannot enqueue the job: its arguments could not be read again: a number is beyond a float, or an integer of more than 64 bits; pass it as a text')
        WHEN coalesce(r.run_at, r.delay_seconds, r.unique_id, r.unique_scope, r.on_conflict, r.idempotency_key, r.concurrency_key, r.concurrency_group, r.concurrency_limit, r.concurrency_on_conflict, r.max_attempts, r.max_crashes, r.at_most_once, r.traceparent) IS NULL THEN NULL
        WHEN typeof(r.idempotency_key) NOT IN ('null', 'text') OR length(CAST(r.idempotency_key AS blob)) NOT BETWEEN 1 AND 255 OR instr(r.idempotency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its idempotency_key must have 1 to 255 bytes and no NUL')
        WHEN typeof(r.unique_id) NOT IN ('null', 'text') OR length(CAST(r.unique_id AS blob)) NOT BETWEEN 1 AND 255 OR instr(r.unique_id, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_id must have 1 to 255 bytes and no NUL')
        WHEN r.unique_scope NOT IN ('while_waiting', 'until_finished', 'until_result_expires')
        THEN RAISE(ABORT, 'cannot enqueue the job: its unique_scope must be one of while_waiting, until_finished, until_result_expires')
        WHEN r.on_conflict NOT IN ('existing', 'refuse', 'replace', 'run_again')
        THEN RAISE(ABORT, 'cannot enqueue the job: its on_conflict must be one of existing, refuse, replace, run_again')
        WHEN r.concurrency_on_conflict NOT IN ('block', 'discard', 'ordered')
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_on_conflict must be one of block, discard, ordered')
        WHEN typeof(r.concurrency_key) NOT IN ('null', 'text') OR typeof(r.concurrency_group) NOT IN ('null', 'text') OR r.concurrency_key = '' OR r.concurrency_group = '' OR length(CAST(coalesce(r.concurrency_group, NEW.class) || '/' || r.concurrency_key AS blob)) > 255 OR instr(coalesce(r.concurrency_group, NEW.class) || '/' || r.concurrency_key, char(0)) > 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key and concurrency_group must not be empty, have at most 255 bytes together, and no NUL')
        WHEN r.concurrency_key IS NULL AND (r.concurrency_limit IS NOT NULL OR r.concurrency_group IS NOT NULL OR r.concurrency_on_conflict IS NOT NULL)
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_key is missing, without which there is no limit')
        WHEN typeof(r.concurrency_limit) NOT IN ('null', 'integer') OR r.concurrency_limit < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency_limit must be 1 or more; pause its queue to stop its jobs')
        WHEN r.concurrency_on_conflict = 'ordered' AND r.concurrency_limit <> 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its concurrency key is ordered, so its concurrency_limit must be 1')
        WHEN r.run_at IS NOT NULL AND r.delay_seconds IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: it has both run_at and delay_seconds; choose one')
        WHEN r.run_at IS NOT NULL AND (typeof(r.run_at) <> 'text' OR r.run_at NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' OR date(substr(r.run_at, 1, 10), '+0 days') IS NOT substr(r.run_at, 1, 10) OR datetime(r.run_at) IS NULL OR datetime(r.run_at) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr(r.run_at, 12, 2) = '24' OR instr(r.run_at, char(0)) > 0 OR (length(r.run_at) > 10 AND substr(r.run_at, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') OR NOT (ltrim(substr(r.run_at, 12), '0123456789:.') IN ('', 'Z') OR ltrim(substr(r.run_at, 12), '0123456789:.') GLOB '[+-][0-9][0-9]:[0-9][0-9]'))
        THEN RAISE(ABORT, 'cannot enqueue the job: its run_at must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z')
        WHEN typeof(r.delay_seconds) NOT IN ('null', 'integer', 'real') OR NOT (r.delay_seconds >= 0 AND r.delay_seconds <= 31622400000)
        THEN RAISE(ABORT, 'cannot enqueue the job: its delay_seconds must be 0 or more, and at most 1000 years')
        WHEN typeof(r.max_attempts) NOT IN ('null', 'integer') OR r.max_attempts < 1
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_attempts must be an integer, 1 or more')
        WHEN typeof(r.max_crashes) NOT IN ('null', 'integer') OR r.max_crashes < 0
        THEN RAISE(ABORT, 'cannot enqueue the job: its max_crashes must be an integer, 0 or more')
        WHEN r.at_most_once NOT IN (0, 1)
        THEN RAISE(ABORT, 'cannot enqueue the job: its at_most_once must be true or false')
        WHEN r.at_most_once AND r.max_attempts > 1
        THEN RAISE(ABORT, 'cannot enqueue the job: it has at-most-once delivery and more than one attempt; choose one')
        WHEN typeof(r.traceparent) NOT IN ('null', 'text') OR instr(r.traceparent, char(0)) > 0 OR length(CAST(r.traceparent AS blob)) > 255 OR substr(r.traceparent, 4, 32) = '00000000000000000000000000000000' OR substr(r.traceparent, 37, 16) = '0000000000000000' OR r.traceparent GLOB 'ff*' OR (r.traceparent GLOB '00*' AND length(r.traceparent) <> 55) OR (r.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]' AND r.traceparent NOT GLOB '[0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f]-*')
        THEN RAISE(ABORT, 'cannot enqueue the job: its traceparent is not one of W3C Trace Context; pass the header as it is, `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits')
        WHEN coalesce(r.unique_id, r.idempotency_key, r.concurrency_key) IS NOT NULL
        THEN RAISE(ABORT, 'cannot enqueue the job: one of its keys is written with an escape') END FROM (WITH e AS MATERIALIZED (SELECT value FROM json_each(NEW.jobs)) SELECT e.value -> '$.arguments' AS arguments, e.value ->> '$.queue' AS queue, e.value ->> '$.priority' AS priority, e.value ->> '$.run_at' AS run_at, e.value ->> '$.delay_seconds' AS delay_seconds, e.value ->> '$.unique_id' AS unique_id, e.value ->> '$.unique_scope' AS unique_scope, e.value ->> '$.on_conflict' AS on_conflict, e.value ->> '$.idempotency_key' AS idempotency_key, e.value ->> '$.concurrency_key' AS concurrency_key, e.value ->> '$.concurrency_group' AS concurrency_group, e.value ->> '$.concurrency_limit' AS concurrency_limit, e.value ->> '$.concurrency_on_conflict' AS concurrency_on_conflict, e.value ->> '$.max_attempts' AS max_attempts, e.value ->> '$.max_crashes' AS max_crashes, e.value ->> '$.at_most_once' AS at_most_once, e.value ->> '$.traceparent' AS traceparent FROM e) AS r
    WHERE NOT ((SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL)));
    INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, max_attempts, max_crashes, at_most_once, policy, traceparent, active_job_id, scheduled_at, created_at, updated_at) SELECT coalesce(r.queue, 'default'), NEW.class, coalesce(r.arguments, 'null'), coalesce(r.priority, 0), CASE WHEN r.max_attempts < 2147483647 THEN r.max_attempts WHEN r.max_attempts IS NOT NULL THEN 2147483647 END, CASE WHEN r.max_crashes < 2147483647 THEN r.max_crashes WHEN r.max_crashes IS NOT NULL THEN 2147483647 END, coalesce(r.at_most_once, 0), '{"unique_scope":"' || r.unique_scope || '"}', r.traceparent, NULL, coalesce(CASE WHEN instr(r.run_at, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', r.run_at) ELSE strftime('%Y-%m-%d %H:%M:%S', substr(r.run_at, 1, instr(r.run_at, '.') - 1) || ltrim(substr(r.run_at, instr(r.run_at, '.') + 1), '0123456789')) || '.' || substr(substr(substr(r.run_at, instr(r.run_at, '.') + 1), 1, length(substr(r.run_at, instr(r.run_at, '.') + 1)) - length(ltrim(substr(r.run_at, instr(r.run_at, '.') + 1), '0123456789'))) || '000000', 1, 6) END, strftime('%Y-%m-%d %H:%M:%f000', 'now', (CAST(round(r.delay_seconds * 1000000) AS integer) / 1000000.0) || ' seconds')), strftime('%Y-%m-%d %H:%M:%f000', 'now'), strftime('%Y-%m-%d %H:%M:%f000', 'now')
    FROM (WITH e AS MATERIALIZED (SELECT key, value FROM json_each(NEW.jobs)) SELECT key AS place, e.value -> '$.arguments' AS arguments, e.value ->> '$.queue' AS queue, e.value ->> '$.priority' AS priority, e.value ->> '$.run_at' AS run_at, e.value ->> '$.delay_seconds' AS delay_seconds, e.value ->> '$.unique_id' AS unique_id, e.value ->> '$.unique_scope' AS unique_scope, e.value ->> '$.on_conflict' AS on_conflict, e.value ->> '$.idempotency_key' AS idempotency_key, e.value ->> '$.concurrency_key' AS concurrency_key, e.value ->> '$.concurrency_group' AS concurrency_group, e.value ->> '$.concurrency_limit' AS concurrency_limit, e.value ->> '$.concurrency_on_conflict' AS concurrency_on_conflict, e.value ->> '$.max_attempts' AS max_attempts, e.value ->> '$.max_crashes' AS max_crashes, e.value ->> '$.at_most_once' AS at_most_once, e.value ->> '$.traceparent' AS traceparent FROM e) AS r
    WHERE NOT ((SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL))) ORDER BY r.place;
    SELECT CASE WHEN NOT ((SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL))) AND changes() <> json_array_length(NEW.jobs)
        THEN RAISE(ABORT, 'cannot enqueue the jobs: a trigger of solid_queue_jobs ignores one') END;
    INSERT INTO windlass_place_jobs_v1 SELECT last_insert_rowid() - json_array_length(NEW.jobs), last_insert_rowid()
    WHERE json_array_length(NEW.jobs) > 0 AND NOT ((SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL)));
    INSERT INTO windlass_enqueue_v1 (class, arguments, queue, priority, run_at, delay_seconds, unique_id, unique_scope, on_conflict, idempotency_key, concurrency_key, concurrency_group, concurrency_limit, concurrency_on_conflict, max_attempts, max_crashes, at_most_once, traceparent) SELECT NEW.class, e.value -> '$.arguments', e.value ->> '$.queue', e.value ->> '$.priority', e.value ->> '$.run_at', e.value ->> '$.delay_seconds', e.value ->> '$.unique_id', e.value ->> '$.unique_scope', e.value ->> '$.on_conflict', e.value ->> '$.idempotency_key', e.value ->> '$.concurrency_key', e.value ->> '$.concurrency_group', e.value ->> '$.concurrency_limit', e.value ->> '$.concurrency_on_conflict', e.value ->> '$.max_attempts', e.value ->> '$.max_crashes', e.value ->> '$.at_most_once', e.value ->> '$.traceparent'
    FROM json_each(NEW.jobs) AS e WHERE (SELECT instr(NEW.jobs, '"unique_id"') OR instr(NEW.jobs, '"idempotency_key"') OR instr(NEW.jobs, '"concurrency_key"') OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL)) ORDER BY e.key;
END;

-- Makes new jobs without name and limit ready or scheduled.
CREATE TRIGGER windlass_place_jobs_v1_insert INSTEAD OF INSERT ON windlass_place_jobs_v1
BEGIN
    INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
    SELECT id, queue_name, priority, class_name, (at_most_once OR crash_count > 0 OR coalesce(max_crashes = 0, false)), created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND (scheduled_at IS NULL OR scheduled_at <= created_at) ORDER BY id;
    INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
    SELECT id, queue_name, priority, scheduled_at, created_at FROM solid_queue_jobs
    WHERE id > NEW.after_id AND id <= NEW.up_to AND scheduled_at > created_at ORDER BY id;
END;

CREATE TRIGGER windlass_enqueue_many_insert INSTEAD OF INSERT ON windlass_enqueue_many
BEGIN
    INSERT INTO windlass_enqueue_many_v1 VALUES (NEW.class, NEW.jobs);
END;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000014', strftime('%Y-%m-%d %H:%M:%f000', 'now'))
ON CONFLICT (version) DO NOTHING;
