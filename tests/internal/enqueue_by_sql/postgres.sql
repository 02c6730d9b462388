------------------------------------------------------------------------------------------------------------------------
-- Enqueues by SQL
------------------------------------------------------------------------------------------------------------------------

-- For programs in any language, in the caller's own transaction: a row inserted into the view
-- windlass_enqueue is a job, and the function windlass_enqueue returns the job's id. Both follow the rules of Rust's
-- enqueue. What a name with _v2 means will not change.
--
-- Both work with the rights of their owner: a role that may use them enqueues jobs, and needs no right on a table. No
-- other role than the owner may, until it is granted:
--   GRANT INSERT, SELECT ON windlass_enqueue TO app;
--   GRANT EXECUTE ON FUNCTION windlass_enqueue, windlass_enqueue_many TO app;
--
-- From here on, this file is made of tests/internal/enqueue_by_sql/postgres.sql and the constants of Rust: a test
-- compares them.

CREATE OR REPLACE VIEW windlass_enqueue_v2 AS SELECT
    {view columns}
WHERE false;

-- Whether arrays and objects of JSON text are nested too deeply to be read again.
CREATE OR REPLACE FUNCTION windlass_is_too_deep(p_json text, p_deepest integer) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_rest text;
BEGIN
    IF length(p_json) - length(translate(p_json, '{open_brackets}', '')) <= p_deepest THEN
        RETURN false;
    END IF;
    -- A bracket in a text counts for nothing.
    v_rest := regexp_replace(p_json, E'"([^"\\\\]|\\\\.)*"', '', 'g');
    v_rest := translate(regexp_replace(v_rest, '[^][{braces}]', '', 'g'), '{braces}', '[]');
    FOR v_depth IN 1 .. p_deepest LOOP
        v_rest := replace(v_rest, '[]', '');
    END LOOP;
    RETURN v_rest <> '';
END;
$$;

-- Whether JSON text has a number beyond a float, or an integer of more than 64 bits.
CREATE OR REPLACE FUNCTION windlass_has_wide_number(p_json text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_number text;
    v_float double precision;
BEGIN
    -- A number in a text is none.
    FOR v_number IN SELECT m[1] FROM regexp_matches(regexp_replace(p_json, E'"([^"\\\\]|\\\\.)*"', '', 'g'),
        '([0-9]+(?:[.][0-9]+)?(?:[eE][+]?[0-9]+)?|-[0-9]+(?![0-9.eE]))', 'g') AS m
    LOOP
        IF v_number ~ '^-?[0-9]{19,}$' AND CAST(v_number AS numeric) NOT BETWEEN -9223372036854775808 AND 18446744073709551615 THEN
            RETURN true;
        ELSIF v_number ~ '[eE][+]?[0-9]{3}' OR length(v_number) > 300 THEN
            v_float := v_number;
        END IF;
    END LOOP;
    RETURN false;
EXCEPTION WHEN numeric_value_out_of_range THEN
    RETURN true;
END;
$$;

-- Refuses a class that only the code of its program may enqueue or, if the setting strict_classes is on, a class that no
-- worker has stored.
CREATE OR REPLACE FUNCTION windlass_refuse_class(class text, is_unknown boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF is_unknown THEN
        RAISE EXCEPTION 'cannot enqueue `%`: no worker has stored this class, and strict_classes is on', class
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Start a worker that performs it, or correct the name.';
    END IF;
    RAISE EXCEPTION 'cannot enqueue `%` by name: its type is internal, so only its program''s own code enqueues it', class
        USING ERRCODE = 'insufficient_privilege';
END;
$$;

-- Wakes sleeping workers, once for each statement of a client: windlass.woken_by is the time of the last one.
CREATE OR REPLACE FUNCTION windlass_wake() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('windlass.woken_by', CAST(statement_timestamp() AS text), true), {wake};
END;
$$;

-- Where a job is: 0 ready, 1 scheduled, 2 blocked, 3 claimed, 4 ended with a result that is kept, 5 none of these.
CREATE OR REPLACE FUNCTION windlass_place_of(job bigint) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT CASE WHEN EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE job_id = job) THEN 0
        WHEN EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id = job) THEN 1
        WHEN EXISTS (SELECT 1 FROM solid_queue_blocked_executions WHERE job_id = job) THEN 2
        WHEN EXISTS (SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = job) THEN 3
        WHEN EXISTS (SELECT 1 FROM windlass_results WHERE job_id = job AND expires_at > {now}) THEN 4 ELSE 5 END);
END;
$$;

-- Takes places for a new job in the quota of its class, as Rust does: from slots that no other transaction has locked. One
-- that exceeds the quota is refused, also where Rust would discard it.
CREATE OR REPLACE FUNCTION windlass_take_places(p_class text, p_quota text, p_job bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_quota json := p_quota;
    v_name text := v_quota ->> 'name';
    v_now timestamp := {now};
    v_slots bigint;
    v_slot bigint;
    r record;
BEGIN
    FOR r IN
        SELECT l.per, CAST(v_quota -> 'limits' ->> l.field AS bigint) AS jobs, l.seconds, l.counts,
            date_trunc(CASE WHEN l.seconds IS NULL THEN 'day' ELSE l.per END, v_now) AS starts_at,
            coalesce(v_now - l.seconds * interval '1 second', '-infinity') AS since
        FROM (VALUES {limits}) AS l (place, per, field, seconds, counts)
        WHERE v_quota -> 'limits' ->> l.field IS NOT NULL ORDER BY l.place
    LOOP
        v_slots := greatest(least(r.jobs, {most slots}), 1);
        FOR v_try IN 1 .. {rounds} LOOP
            UPDATE windlass_quota_slots s SET jobs = CASE WHEN s.starts_at > r.since THEN s.jobs ELSE 0 END + 1,
                starts_at = CASE WHEN s.starts_at > r.since AND r.seconds IS NOT NULL THEN s.starts_at ELSE r.starts_at END,
                limits = v_quota ->> 'limits'
            WHERE s.quota = v_name AND s.per = r.per AND s.slot = (SELECT f.slot FROM windlass_quota_slots f
                WHERE f.quota = v_name AND f.per = r.per AND f.slot < v_slots
                -- Each session starts at another slot, so that few meet.
                AND f.slot >= CASE WHEN v_try = 1 THEN CAST(pg_backend_pid() AS bigint) * 7919 % v_slots ELSE 0 END
                AND CASE WHEN f.starts_at > r.since THEN f.jobs ELSE 0 END + 1
                    <= r.jobs / v_slots + CASE WHEN f.slot < r.jobs % v_slots THEN 1 ELSE 0 END
                ORDER BY f.slot LIMIT 1 FOR UPDATE SKIP LOCKED)
            RETURNING s.slot INTO v_slot;
            EXIT WHEN FOUND;
            CONTINUE WHEN v_try = 1;
            INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)
            SELECT v_name, r.per, n.slot, r.starts_at, 0, v_quota ->> 'limits' FROM generate_series(0, v_slots - 1) AS n (slot)
            WHERE (SELECT count(*) FROM windlass_quota_slots f WHERE f.quota = v_name AND f.per = r.per AND f.slot < v_slots) < v_slots
            ON CONFLICT (quota, per, slot) DO NOTHING;
            CONTINUE WHEN FOUND;
            -- Gives back the places of jobs that do not wait any more.
            WITH gone AS MATERIALIZED (
                SELECT q.job_id, q.slot FROM windlass_quota_jobs q JOIN windlass_quota_slots f ON f.quota = q.quota AND f.per = r.per AND f.slot = q.slot
                WHERE q.quota = v_name AND r.seconds IS NULL
                AND NOT EXISTS (SELECT 1 FROM solid_queue_ready_executions e WHERE e.job_id = q.job_id)
                AND NOT EXISTS (SELECT 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = q.job_id)
                AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions e WHERE e.job_id = q.job_id)
                ORDER BY q.job_id LIMIT greatest(r.jobs / 100, 1) FOR UPDATE OF q, f SKIP LOCKED
            ), forgotten AS (
                DELETE FROM windlass_quota_jobs q WHERE q.job_id IN (SELECT gone.job_id FROM gone)
            )
            UPDATE windlass_quota_slots s SET jobs = s.jobs - n.jobs
            FROM (SELECT gone.slot, count(*) AS jobs FROM gone GROUP BY gone.slot) AS n
            WHERE s.quota = v_name AND s.per = r.per AND s.slot = n.slot;
            EXIT WHEN NOT FOUND;
        END LOOP;
        IF v_slot IS NULL THEN
            RAISE EXCEPTION 'cannot enqueue `%`: the quota `%` allows % %; try again %', p_class, v_name, r.jobs, r.counts,
                CASE WHEN r.seconds IS NULL THEN 'when waiting jobs have started'
                ELSE 'in ' || r.seconds - CAST(extract(epoch FROM v_now) AS bigint) % r.seconds + 1 || ' s' END
                USING ERRCODE = 'configuration_limit_exceeded';
        END IF;
        IF r.seconds IS NULL THEN
            INSERT INTO windlass_quota_jobs (job_id, quota, slot) VALUES (p_job, v_name, v_slot) ON CONFLICT (job_id) DO NOTHING;
        END IF;
    END LOOP;
END;
$$;

-- Returns the tags, the metadata and the version of the arguments as a policy has them, with those of the class: of both, that
-- of the caller counts.
CREATE OR REPLACE FUNCTION windlass_extras(p_class text, p_tags text, p_meta text, p_version bigint, p_of_class text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_tags json;
    v_meta json;
    v_of_class json;
    v_problem text;
    v_extras text;
BEGIN
    BEGIN
        v_tags := p_tags;
        v_meta := p_meta;
        v_of_class := p_of_class;
    EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
        v_problem := 'its tags or its meta are not JSON';
    END;
    v_problem := CASE
        WHEN v_problem IS NOT NULL THEN v_problem
        WHEN json_typeof(v_tags) <> 'array' THEN '{tags}'
        WHEN v_tags IS NOT NULL AND (SELECT count(DISTINCT t.value #>> '{braces}') > {most tags} OR bool_or(json_typeof(t.value) <> 'string'
            OR octet_length(t.value #>> '{braces}') NOT BETWEEN 1 AND {longest tag}) FROM json_array_elements(v_tags) AS t) THEN '{tags}'
        WHEN json_typeof(v_meta) <> 'object' THEN '{meta}'
        WHEN v_meta IS NOT NULL AND (SELECT count(DISTINCT k) > {most tags} OR bool_or(octet_length(k) NOT BETWEEN 1 AND {longest tag})
            FROM json_object_keys(v_meta) AS k) THEN '{meta}' END;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(p_class, 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH tag AS (
        SELECT t.value, 0 AS source, t.place FROM json_array_elements_text(v_tags) WITH ORDINALITY AS t (value, place)
        UNION ALL SELECT t.value, 1, t.place FROM json_array_elements_text(v_of_class -> 'tags') WITH ORDINALITY AS t (value, place)
    ), part AS (
        SELECT m.key, m.value, 0 AS source, m.place FROM json_each(v_meta) WITH ORDINALITY AS m (key, value, place)
        UNION ALL SELECT m.key, m.value, 1, m.place FROM json_each(v_of_class -> 'meta') WITH ORDINALITY AS m (key, value, place)
    )
    SELECT concat_ws(',',
        '"tags":[' || (SELECT string_agg(CAST(to_json(u.value) AS text), ',' ORDER BY u.source, u.place)
            FROM (SELECT DISTINCT ON (t.value COLLATE "C") t.* FROM tag AS t ORDER BY t.value COLLATE "C", t.source, t.place) AS u) || ']',
        '"meta":{' || (SELECT string_agg(to_json(u.key) || ':' || u.value, ',' ORDER BY u.key COLLATE "C")
            FROM (SELECT DISTINCT ON (m.key COLLATE "C") m.* FROM part AS m ORDER BY m.key COLLATE "C", m.source, m.place DESC) AS u) || '}',
        '"version":' || nullif(p_version, 1)) INTO v_extras;
    RETURN nullif('{' || v_extras || '}', '{braces}');
END;
$$;

-- Returns the rates of a caller as a job has them, or NULL if there are none.
CREATE OR REPLACE FUNCTION windlass_rates_of(p_class text, p_rates text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_rates json;
    v_problem text;
    v_stored text;
BEGIN
    BEGIN
        v_rates := p_rates;
        IF (CASE WHEN json_typeof(v_rates) = 'array' THEN json_array_length(v_rates) > {most rates} ELSE true END) THEN
            v_problem := '{rate shape}';
        END IF;
    EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
        v_problem := 'its rates are not JSON';
    END;
    -- A number is looked at as text first: a cast could fail.
    SELECT coalesce(v_problem, min(CASE
        WHEN json_typeof(rate.value) <> 'object' THEN '{rate shape}'
        WHEN (SELECT count(*) <> count(DISTINCT part) OR bool_or(part NOT IN ({rate parts})) FROM json_object_keys(rate.value) AS part) THEN '{rate shape}'
        WHEN json_typeof(rate.value -> 'key') NOT IN ('string', 'null') OR octet_length(rate.value ->> 'key') NOT BETWEEN 1 AND 255
            OR {rate key has control} THEN '{rate key}'
        WHEN CASE json_typeof(rate.value -> 'period') WHEN 'string' THEN rate.value ->> 'period' NOT IN ({rate periods})
            WHEN 'number' THEN CASE WHEN rate.value ->> 'period' ~ '^[0-9]{1,11}$'
                THEN CAST(rate.value ->> 'period' AS bigint) NOT BETWEEN 1 AND {longest period} ELSE true END
            ELSE true END THEN '{rate period}'
        WHEN rate.value ->> 'number' IS NULL OR (SELECT bool_or(CASE WHEN json_typeof(part.value) = 'number' AND CAST(part.value AS text) ~ '^[0-9]{1,8}$'
                THEN CAST(CAST(part.value AS text) AS integer) NOT BETWEEN 1 AND {most starts} ELSE json_typeof(part.value) <> 'null' END)
            FROM json_each(rate.value) AS part WHERE part.key IN ('number', 'burst', 'cost')) THEN '{rate number}'
        WHEN {own burst} > {most starts} THEN '{rate number}'
        WHEN CAST(rate.value ->> 'cost' AS bigint) > {own burst} THEN '{rate cost}' END)) INTO v_problem
    FROM json_array_elements(CASE WHEN v_problem IS NULL THEN v_rates END) AS rate (value);
    IF v_problem IS NULL THEN
        SELECT CASE WHEN count(*) <> count(DISTINCT coalesce(rate.value ->> 'key', p_class) COLLATE "C") THEN '{rate same key}' END,
            '[' || string_agg({stored rate}, ',' ORDER BY rate.place) || ']' INTO v_problem, v_stored
        FROM json_array_elements(v_rates) WITH ORDINALITY AS rate (value, place);
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(p_class, 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN v_stored;
END;
$$;

-- Stores by when a job must have started, if its policy says so.
CREATE OR REPLACE FUNCTION windlass_expire(p_job bigint, p_policy text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, {expires at j}
    FROM solid_queue_jobs j, (SELECT CAST(p_policy AS json) -> 'expiry' AS expiry) AS p WHERE j.id = p_job AND p.expiry IS NOT NULL;
END;
$$;

-- Keeps batches from ending until the transaction does: the one that a job joins, which must not be over, and the one that it
-- waits for. Transactions that add jobs do not wait for each other.
CREATE OR REPLACE FUNCTION windlass_keep_batches(p_class text, p_batch bigint, p_after bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_is_over boolean;
BEGIN
    PERFORM 1 FROM solid_queue_batches b WHERE b.id IN (p_batch, p_after) ORDER BY b.id FOR KEY SHARE;
    -- Statements of their own: they see what was committed before the lock was granted.
    IF p_after IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches b WHERE b.id = p_after AND {batch is ours}) THEN
        RAISE EXCEPTION 'cannot enqueue `%`: there is no batch % for it to wait for', p_class, p_after USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF p_batch IS NOT NULL THEN
        SELECT b.finished_at IS NOT NULL AND NOT {batch is open} INTO v_is_over
        FROM solid_queue_batches b WHERE b.id = p_batch AND {batch is ours};
        IF v_is_over IS NULL THEN
            RAISE EXCEPTION 'cannot enqueue `%`: there is no batch %', p_class, p_batch USING ERRCODE = 'invalid_parameter_value';
        ELSIF v_is_over THEN
            RAISE EXCEPTION 'cannot enqueue `%`: the batch % is over', p_class, p_batch USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Add jobs in the transaction that opens the batch, or from a job of the batch.';
        END IF;
    END IF;
END;
$$;

-- Enqueues any job, and returns its id and its outcome. If it is new, it gets the id p_id, or the next one.
CREATE OR REPLACE FUNCTION windlass_enqueue_any_v2(p_id bigint, p_class text, {parameters}, OUT id bigint, OUT outcome text)
LANGUAGE plpgsql AS $$
DECLARE
    v_now timestamp := {now};
    v_class windlass_classes := (SELECT c FROM windlass_classes c WHERE c.class_name = p_class);
    v_problem text := {problem p_};
    v_json json;
    v_at timestamp;
    v_delay bigint;
    v_key text := coalesce(p_concurrency_group, p_class) || '/' || p_concurrency_key;
    v_limit integer := CASE WHEN p_concurrency_key IS NOT NULL THEN least(coalesce(p_concurrency_limit, 1), {max_integer}) END;
    v_on_conflict text := nullif(p_concurrency_on_conflict, 'block');
    v_scope text;
    v_id bigint := p_id;
    v_job bigint;
    v_holder bigint;
    v_place integer;
    v_hold windlass_unique_jobs;
    v_has_run boolean := false;
    v_is_behind boolean := false;
    v_is_held boolean := false;
    v_internal text;
    v_extras text;
    v_policy text;
    v_rates text;
    v_share text;
    v_gate text;
    v_wakes boolean := false;
BEGIN
    IF v_problem IS NULL THEN
        BEGIN
            v_json := p_arguments;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
            v_problem := 'its arguments are not JSON';
        END;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(coalesce(p_class, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_class.internal OR (v_class.internal IS NULL AND EXISTS (SELECT 1 FROM windlass_settings s WHERE s.name = 'strict_classes' AND s.value = 'on')) THEN
        PERFORM windlass_refuse_class(p_class, v_class.internal IS NULL);
    END IF;
    -- What is left out is that of the class.
    p_queue := coalesce(p_queue, v_class.queue_name, '{default_queue}');
    p_arguments := coalesce(p_arguments, 'null');
    p_priority := coalesce(p_priority, v_class.priority, 0);
    p_max_crashes := coalesce(p_max_crashes, v_class.max_crashes);
    IF NOT coalesce(p_at_most_once, v_class.at_most_once, false) THEN
        p_max_attempts := coalesce(p_max_attempts, v_class.max_attempts);
    END IF;
    v_extras := {extras of class};
    IF num_nonnulls(p_tags, p_meta, p_version) > 0 THEN
        v_extras := windlass_extras(p_class, p_tags, p_meta, p_version, v_extras);
    END IF;
    v_policy := {policy};
    v_scope := coalesce(p_unique_scope, {scope of class}, '{default_scope}');
    p_at_most_once := {is once};
    IF num_nonnulls(p_batch_id, p_after_batch) > 0 THEN
        PERFORM windlass_keep_batches(p_class, p_batch_id, p_after_batch);
    END IF;
    v_rates := CASE WHEN p_rates IS NULL THEN v_class.rates ELSE windlass_rates_of(p_class, p_rates) END;
    IF p_tenant IS NOT NULL THEN
        v_share := (SELECT chr(29) || p_queue || chr(28) || p_tenant FROM windlass_fair_queues f WHERE f.queue_name = p_queue AND NOT f.is_ending);
    END IF;
    IF v_rates IS NOT NULL OR v_share IS NOT NULL THEN
        v_gate := CASE WHEN v_on_conflict = '{ordered}' THEN '' ELSE concat_ws(chr(31), v_share,
            (SELECT string_agg(rate.value ->> 'key', chr(31) ORDER BY rate.place)
            FROM json_array_elements(CAST(v_rates AS json)) WITH ORDINALITY AS rate (value, place))) END || coalesce(chr(30) || v_key, '');
    END IF;
    v_at := p_run_at AT TIME ZONE 'UTC';
    v_delay := round(p_delay_seconds * 1000000);
    outcome := 'new';

    IF v_id IS NULL AND p_unique_id IS NULL AND p_idempotency_key IS NULL THEN
        INSERT INTO solid_queue_jobs ({names}) VALUES ({values})
        RETURNING solid_queue_jobs.id, scheduled_at INTO v_job, v_at;
    ELSE
        v_id := coalesce(v_id, nextval(CAST(pg_get_serial_sequence('solid_queue_jobs', 'id') AS regclass)));
        -- A used key decides, whatever holds the unique id.
        SELECT j.id INTO v_job FROM solid_queue_jobs j WHERE j.idempotency_key = p_idempotency_key;
        IF FOUND THEN
            outcome := 'existing';
            id := v_job;
            RETURN;
        END IF;
        FOR v_round IN 1 .. {rounds} LOOP
            EXIT WHEN p_unique_id IS NULL;
            INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) VALUES (p_unique_id, v_id, v_scope)
            ON CONFLICT (unique_id) DO NOTHING;
            v_is_held := FOUND;
            EXIT WHEN v_is_held;
            SELECT * INTO v_hold FROM windlass_unique_jobs u WHERE u.unique_id = p_unique_id FOR UPDATE;
            CONTINUE WHEN NOT FOUND; -- deleted meanwhile
            -- The job that the row names holds the unique id, or else the one that has to end before it.
            v_holder := v_hold.job_id;
            v_place := windlass_place_of(v_holder);
            IF NOT {holds v_hold.scope v_place} THEN
                v_holder := v_hold.after_job_id;
                v_place := windlass_place_of(v_holder);
                IF NOT {holds v_hold.scope v_place} THEN
                    v_holder := NULL;
                END IF;
            END IF;
            IF v_holder IS NULL THEN
                UPDATE windlass_unique_jobs u SET job_id = v_id, scope = v_scope, after_job_id = NULL
                WHERE u.unique_id = p_unique_id;
                v_is_held := true;
                EXIT;
            ELSIF p_on_conflict = 'refuse' THEN
                RAISE EXCEPTION 'cannot enqueue `%`: job % holds the unique id `%`', p_class, v_holder, p_unique_id
                    USING ERRCODE = 'unique_violation';
            ELSIF v_place = 3 AND p_on_conflict IN ('replace', 'run_again') THEN
                UPDATE windlass_unique_jobs u SET job_id = v_id, scope = v_scope, after_job_id = v_holder
                WHERE u.unique_id = p_unique_id;
                v_is_behind := true;
                v_is_held := true;
                outcome := 'again';
                EXIT;
            ELSIF v_place <= 2 THEN
                -- From here on it cannot be claimed before this transaction ends.
                CASE v_place
                    WHEN 0 THEN PERFORM 1 FROM solid_queue_ready_executions e WHERE e.job_id = v_holder FOR UPDATE;
                    WHEN 1 THEN PERFORM 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = v_holder FOR UPDATE;
                    ELSE PERFORM 1 FROM solid_queue_blocked_executions e WHERE e.job_id = v_holder FOR UPDATE;
                END CASE;
                CONTINUE WHEN NOT FOUND;
            END IF;
            v_job := v_holder;
            outcome := 'existing';
            IF v_place > 2 OR p_on_conflict IS DISTINCT FROM 'replace' THEN
                id := v_job;
                RETURN;
            END IF;
            -- What an internal class waits for is not replaced from outside.
            SELECT j.class_name INTO v_internal FROM solid_queue_jobs j JOIN windlass_classes c ON c.class_name = j.class_name
            WHERE j.id = v_holder AND c.internal;
            IF FOUND THEN
                PERFORM windlass_refuse_class(v_internal, false);
            END IF;
            outcome := 'replaced';
            v_is_held := true;
            UPDATE windlass_unique_jobs u SET job_id = v_holder, scope = v_scope,
                after_job_id = CASE WHEN v_holder = v_hold.job_id THEN v_hold.after_job_id END
            WHERE u.unique_id = p_unique_id;
            UPDATE solid_queue_jobs j SET {assignments}, attempts = 0, crash_count = 0, updated_at = v_now
            WHERE j.id = v_holder RETURNING j.scheduled_at, j.last_claim_id IS NOT NULL INTO v_at, v_has_run;
            -- The newest stay, and those of released runs are counted by themselves.
            DELETE FROM windlass_attempts a WHERE a.job_id = v_holder AND a.id <=
                (SELECT o.id FROM windlass_attempts o WHERE o.job_id = v_holder
                 AND (o.outcome = 'released') = (a.outcome = 'released') ORDER BY o.id DESC LIMIT 1 OFFSET {kept_attempts});
            DELETE FROM windlass_expiries e WHERE e.job_id = v_holder;
            IF v_policy LIKE '%"expiry":%' THEN
                PERFORM windlass_expire(v_holder, v_policy);
            END IF;
            -- What the old one has done, which is undone, and what it waits for.
            DELETE FROM windlass_steps t WHERE t.job_id = v_holder;
            DELETE FROM windlass_waits w WHERE w.job_id = v_holder;
            DELETE FROM windlass_edges w WHERE w.child_job_id = v_holder AND w.otherwise = 'join';
            WITH let_go AS (UPDATE windlass_edges w SET runs_on = 'finish', outcome = 'failed'
                WHERE w.parent_job_id = v_holder AND {is_undo} RETURNING w.child_job_id)
            INSERT INTO windlass_wanted_keys (kind, target_id) SELECT '{child}', g.child_job_id FROM let_go g;
            -- What waits for another job to end stays blocked, whatever its new time is.
            UPDATE solid_queue_blocked_executions e SET queue_name = p_queue, priority = p_priority
            WHERE e.job_id = v_holder AND e.concurrency_key = '{unique_successor}';
            IF FOUND THEN
                id := v_job;
                RETURN;
            END IF;
            DELETE FROM solid_queue_ready_executions e WHERE e.job_id = v_holder;
            DELETE FROM solid_queue_scheduled_executions e WHERE e.job_id = v_holder;
            -- Others of an ordered key may wait behind one with a rate.
            WITH gone AS (DELETE FROM solid_queue_blocked_executions e WHERE e.job_id = v_holder RETURNING e.gate)
            INSERT INTO windlass_wanted_keys (key) SELECT substr(g.gate, strpos(g.gate, chr(30)) + 1) FROM gone g
                WHERE strpos(g.gate, chr(30)) > 0;
            EXIT;
        END LOOP;
        IF p_unique_id IS NOT NULL AND NOT v_is_held THEN
            RAISE EXCEPTION 'cannot enqueue `%`: the job that holds its unique id changes all the time', p_class
                USING ERRCODE = 'serialization_failure', HINT = 'Enqueue it again.';
        END IF;
        IF outcome <> 'replaced' THEN
            INSERT INTO solid_queue_jobs ({names}, id) VALUES ({values}, v_id)
            ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
            RETURNING solid_queue_jobs.id, scheduled_at INTO v_job, v_at;
            IF NOT FOUND THEN
                SELECT j.id INTO v_job FROM solid_queue_jobs j WHERE j.idempotency_key = p_idempotency_key;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'cannot enqueue `%`: the job with its idempotency key was deleted meanwhile', p_class
                        USING ERRCODE = 'serialization_failure', HINT = 'Enqueue it again.';
                END IF;
                outcome := 'existing';
                id := v_job;
                RETURN;
            END IF;
        END IF;
    END IF;

    id := v_job;
    IF v_policy LIKE '%"expiry":%' AND outcome <> 'replaced' THEN
        PERFORM windlass_expire(v_job, v_policy);
    END IF;
    IF v_class.quota IS NOT NULL AND outcome <> 'replaced' AND p_after_batch IS NULL THEN
        PERFORM windlass_take_places(p_class, v_class.quota, v_job);
    END IF;
    IF p_batch_id IS NOT NULL AND outcome <> 'replaced' THEN
        INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) VALUES (v_job, p_batch_id, v_now);
        INSERT INTO windlass_wanted_keys (kind, target_id, amount) VALUES ('{batch}', p_batch_id, 1);
    END IF;
    IF p_after_batch IS NOT NULL THEN
        INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at)
        VALUES (v_job, p_queue, p_priority, '{waits for parents}', timestamp '{never_expires}', v_now);
        INSERT INTO windlass_edges (child_job_id, parent_batch_id, runs_on, otherwise, created_at)
        VALUES (v_job, p_after_batch, coalesce(p_runs_on, 'success'), 'discard', v_now);
        INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('{batch}', p_after_batch);
        v_wakes := true;
    ELSIF v_is_behind THEN
        INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at)
        VALUES (v_job, p_queue, p_priority, '{unique_successor}', timestamp '{never_expires}', v_now);
    ELSIF v_at > v_now THEN
        INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
        VALUES (v_job, p_queue, p_priority, v_at, v_now);
    ELSIF v_key IS NOT NULL OR v_gate IS NOT NULL THEN
        INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, gate, expires_at, created_at)
        VALUES (v_job, p_queue, CASE WHEN v_on_conflict = '{ordered}' THEN {in_order} ELSE p_priority END,
            CASE WHEN v_gate IS NULL THEN v_key ELSE '{waits at gate}' END, v_gate,
            CASE WHEN v_gate IS NULL AND v_on_conflict = 'discard' AND NOT v_has_run THEN timestamp '{does_not_wait}'
            ELSE timestamp '{never_expires}' END, v_now);
        INSERT INTO windlass_wanted_keys (key, kind, name)
        VALUES (CASE WHEN v_gate IS NULL THEN v_key END, CASE WHEN v_gate IS NOT NULL THEN '{gate}' END, v_gate);
        v_wakes := true;
    ELSE
        INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
        VALUES (v_job, p_queue, p_priority, p_class, p_at_most_once OR coalesce(p_max_crashes = 0, false), v_now);
        v_wakes := true;
    END IF;
    IF v_wakes AND current_setting('windlass.woken_by', true) IS DISTINCT FROM CAST(statement_timestamp() AS text) THEN
        PERFORM windlass_wake();
    END IF;
END;
$$;

-- Enqueues one job, and returns its id and its outcome. Most jobs have few columns. They take a short way: a session
-- prepares each expression of a function anew in each transaction.
CREATE OR REPLACE FUNCTION windlass_enqueue_job_v2(p_id bigint, p_class text, {parameters}, OUT id bigint, OUT outcome text)
LANGUAGE plpgsql AS $$
DECLARE
    v_class windlass_classes := (SELECT c FROM windlass_classes c WHERE c.class_name = p_class);
    v_problem text;
    v_json json;
BEGIN
    IF p_id IS NOT NULL OR num_nonnulls({rare p_}, v_class.max_attempts, v_class.max_crashes, v_class.at_most_once, v_class.policy, v_class.rates) > 0 THEN
        SELECT e.id, e.outcome INTO id, outcome FROM windlass_enqueue_any_v2(p_id, p_class, {parameter names}) AS e;
        RETURN;
    END IF;
    v_problem := {problem common p_};
    IF v_problem IS NULL THEN
        BEGIN
            v_json := p_arguments;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
            v_problem := 'its arguments are not JSON';
        END;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(coalesce(p_class, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_class.internal OR (v_class.internal IS NULL AND EXISTS (SELECT 1 FROM windlass_settings s WHERE s.name = 'strict_classes' AND s.value = 'on')) THEN
        PERFORM windlass_refuse_class(p_class, v_class.internal IS NULL);
    END IF;
    INSERT INTO solid_queue_jobs ({common names}) VALUES ({common values}) RETURNING solid_queue_jobs.id INTO id;
    IF v_class.quota IS NOT NULL THEN
        PERFORM windlass_take_places(p_class, v_class.quota, id);
    END IF;
    INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
    VALUES (id, coalesce(p_queue, v_class.queue_name, '{default_queue}'), coalesce(p_priority, v_class.priority, 0), p_class, false, {now});
    IF current_setting('windlass.woken_by', true) IS DISTINCT FROM CAST(statement_timestamp() AS text) THEN
        PERFORM windlass_wake();
    END IF;
    outcome := 'new';
END;
$$;

CREATE OR REPLACE FUNCTION windlass_insert_enqueue_v2() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    v_done record;
BEGIN
    -- The columns of another table may have types of the caller, which would be computed with the rights of the owner.
    IF TG_RELID <> CAST('windlass_enqueue_v2' AS regclass) THEN
        RAISE EXCEPTION 'this function is the trigger of windlass_enqueue_v2 alone' USING ERRCODE = 'insufficient_privilege';
    END IF;
    v_done := windlass_enqueue_job_v2(NULL, NEW.class, {new values});
    NEW.id := v_done.id;
    NEW.outcome := v_done.outcome;
    RETURN NEW;
END;
$$;

CREATE OR REPLACE TRIGGER windlass_enqueue_v2 INSTEAD OF INSERT ON windlass_enqueue_v2
    FOR EACH ROW EXECUTE FUNCTION windlass_insert_enqueue_v2();

CREATE OR REPLACE VIEW windlass_enqueue AS SELECT * FROM windlass_enqueue_v2;

{enqueue function windlass_enqueue_v2}

{enqueue function windlass_enqueue}

-- Enqueues a list of jobs of one class, all or none, and returns their ids, in order. Each job is an object whose keys are
-- columns of the view windlass_enqueue, with values of the JSON type that each column takes.
CREATE OR REPLACE FUNCTION windlass_enqueue_many_v2(class text, jobs json) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    v_place bigint;
    v_problem text;
    v_jobs jsonb;
    v_ids bigint[];
    v_done record;
    v_are_named boolean;
    v_join_batches boolean;
    v_have_tenants boolean;
    v_class windlass_classes;
    v_are_distinct boolean;
    r record;
BEGIN
    v_problem := {problem class};
    IF v_problem IS NULL THEN
        BEGIN
            v_jobs := jobs;
        EXCEPTION WHEN untranslatable_character OR invalid_text_representation OR numeric_value_out_of_range THEN
            v_problem := 'its jobs contain a NUL character, half of a surrogate pair, or a number that is too long';
        END;
    END IF;
    IF v_problem IS NULL AND jsonb_typeof(v_jobs) IS DISTINCT FROM 'array' THEN
        v_problem := 'its jobs are not a JSON array of objects';
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(coalesce(class, ''), 80), v_problem
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT min(e.place) FILTER (WHERE {is wrong}),
        coalesce(bool_or(e.value ?| ARRAY['unique_id', 'idempotency_key', 'concurrency_key', 'tags', 'meta', 'version', 'after_batch', 'rates']), false),
        coalesce(bool_or(e.value ?| ARRAY['batch_id', 'after_batch']), false), bool_or(e.value ? 'tenant')
        INTO v_place, v_are_named, v_join_batches, v_have_tenants
        FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (value, place);
    IF v_place IS NOT NULL THEN
        SELECT CASE WHEN jsonb_typeof(e.value) <> 'object' THEN 'it is not an object'
            WHEN e.value - ARRAY[{keys}] <> jsonb '{braces}' THEN 'a job has no key '
                || (SELECT min(key) FROM jsonb_object_keys(e.value - ARRAY[{keys}]) AS key)
            ELSE {problem of types} END INTO v_problem FROM jsonb_array_element(v_jobs, CAST(v_place - 1 AS integer)) AS e (value);
        RAISE EXCEPTION 'cannot enqueue `%`: job % of the list: %', class, v_place, v_problem
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO v_class FROM windlass_classes c
    WHERE c.class_name = windlass_enqueue_many_v2.class COLLATE "default";
    IF v_class.internal OR (v_class.internal IS NULL AND EXISTS (SELECT 1 FROM windlass_settings s WHERE s.name = 'strict_classes' AND s.value = 'on')) THEN
        PERFORM windlass_refuse_class(class, v_class.internal IS NULL);
    END IF;

    -- In order, whichever each job names.
    IF v_join_batches THEN
        PERFORM windlass_keep_batches(class, max(b.id) FILTER (WHERE b.joins), max(b.id) FILTER (WHERE NOT b.joins))
        FROM (SELECT CAST(e ->> 'batch_id' AS bigint) AS id, true AS joins FROM jsonb_array_elements(v_jobs) AS e
            UNION SELECT CAST(e ->> 'after_batch' AS bigint), false FROM jsonb_array_elements(v_jobs) AS e) AS b
        WHERE b.id IS NOT NULL GROUP BY b.id ORDER BY b.id;
    END IF;
    IF v_have_tenants AND NOT v_are_named THEN
        v_are_named := EXISTS (SELECT 1 FROM jsonb_array_elements(v_jobs) AS e, windlass_fair_queues f WHERE e ->> 'tenant' IS NOT NULL
            AND f.queue_name = coalesce(e ->> 'queue', v_class.queue_name, '{default_queue}') COLLATE "default" AND NOT f.is_ending);
    END IF;
    IF NOT v_are_named AND num_nonnulls(v_class.quota, v_class.rates) = 0 THEN
        WITH input AS MATERIALIZED (
            SELECT e.place, CAST(e.raw -> 'arguments' AS text) AS arguments, {record options}
            FROM ROWS FROM (json_array_elements(jobs), jsonb_array_elements(v_jobs)) WITH ORDINALITY AS e (raw, value, place), {record}
        ), r AS MATERIALIZED (
            SELECT r.*, {problem r.} AS problem FROM input AS r
        ), job AS (
            INSERT INTO solid_queue_jobs ({plain names}) SELECT {plain values} FROM r WHERE r.problem IS NULL ORDER BY r.place
            RETURNING id, queue_name, priority, class_name, at_most_once, max_crashes, scheduled_at, policy, batch_id
        ), member AS (
            INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at)
            SELECT id, batch_id, {now} FROM job WHERE batch_id IS NOT NULL RETURNING batch_id
        ), added AS (
            INSERT INTO windlass_wanted_keys (kind, target_id, amount) SELECT '{batch}', batch_id, count(*) FROM member GROUP BY batch_id
        ), expiring AS (
            INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, {expires at j}
            FROM (SELECT job.id, job.scheduled_at, CAST(job.policy AS json) -> 'expiry' AS expiry FROM job
                WHERE job.policy LIKE '%"expiry":%') AS j, (SELECT 1) AS p WHERE j.expiry IS NOT NULL
        ), ready AS (
            INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
            SELECT id, queue_name, priority, class_name, at_most_once OR coalesce(max_crashes = 0, false), {now} FROM job
            WHERE scheduled_at IS NULL OR scheduled_at <= {now} RETURNING 1
        ), later AS (
            INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
            SELECT id, queue_name, priority, scheduled_at, {now} FROM job WHERE scheduled_at > {now}
        ), woken AS (
            SELECT CASE WHEN EXISTS (SELECT 1 FROM ready) THEN {wake ready} END AS workers
        ), bad AS (
            SELECT r.place, r.problem FROM r WHERE r.problem IS NOT NULL ORDER BY r.place LIMIT 1
        ) SELECT (SELECT array_agg(job.id ORDER BY job.id) FROM job), bad.place, bad.problem INTO v_ids, v_place, v_problem
        FROM woken LEFT JOIN bad ON true;
        IF v_problem IS NOT NULL THEN
            RAISE EXCEPTION 'cannot enqueue `%`: job % of the list: %', class, v_place, v_problem
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        RETURN QUERY SELECT unnest(v_ids);
        RETURN;
    END IF;
    -- Ids follow the list.
    SELECT array_agg(nextval(CAST(pg_get_serial_sequence('solid_queue_jobs', 'id') AS regclass))) INTO v_ids
        FROM generate_series(1, jsonb_array_length(v_jobs));
    -- Of two with one name, the first decides. Else unique ids are locked in their order, and then keys in theirs, so that
    -- no two lists wait for each other.
    SELECT count(e ->> 'unique_id') = count(DISTINCT e ->> 'unique_id')
        AND count(e ->> 'idempotency_key') = count(DISTINCT e ->> 'idempotency_key')
        INTO v_are_distinct FROM jsonb_array_elements(v_jobs) AS e;
    IF v_are_distinct THEN
        INSERT INTO windlass_unique_jobs (unique_id, job_id, scope)
            SELECT e.value ->> 'unique_id', v_ids[e.place], coalesce(e.value ->> 'unique_scope', '{default_scope}')
            FROM jsonb_array_elements(v_jobs) WITH ORDINALITY AS e (value, place)
            WHERE octet_length(e.value ->> 'unique_id') BETWEEN 1 AND {max_name}
            ORDER BY (e.value ->> 'unique_id') COLLATE "C" ON CONFLICT (unique_id) DO NOTHING;
        PERFORM 1 FROM windlass_unique_jobs u WHERE u.unique_id = ANY (ARRAY(SELECT e ->> 'unique_id' FROM jsonb_array_elements(v_jobs) AS e))
            ORDER BY u.unique_id COLLATE "C" FOR UPDATE;
    END IF;
    FOR r IN
        SELECT e.place, CAST(e.raw -> 'arguments' AS text) AS arguments, r.*
        FROM ROWS FROM (json_array_elements(jobs), jsonb_array_elements(v_jobs)) WITH ORDINALITY AS e (raw, value, place), {record}
        ORDER BY CASE WHEN v_are_distinct THEN r.idempotency_key END COLLATE "C" NULLS FIRST, e.place
    LOOP
        v_done := windlass_enqueue_job_v2(v_ids[r.place], class COLLATE "default", {record arguments});
        v_ids[r.place] := v_done.id;
    END LOOP;
    RETURN QUERY SELECT unnest(v_ids);
END;
$$;

-- Enqueues jobs of one class that differ in their arguments alone, all or none, and returns their ids, in order: faster than a
-- list. The options are a job of a list without arguments, and count for each of them.
CREATE OR REPLACE FUNCTION windlass_enqueue_each_v2(class text, arguments text[], options json DEFAULT NULL) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    p_class text := class COLLATE "default";
    p_arguments text[] := arguments;
    v_class windlass_classes := (SELECT c FROM windlass_classes c WHERE c.class_name = class COLLATE "default");
    v_now timestamp := {now};
    v_options jsonb;
    v_texts text;
    v_place bigint;
    v_problem text;
    v_text text;
    v_queue text;
    v_priority integer;
    v_policy text;
    v_once boolean;
    v_attempts integer;
    v_crashes integer;
    v_at timestamp;
    v_is_shared boolean := false;
    v_ids bigint[];
    r record;
BEGIN
    v_problem := {problem class p_};
    IF v_problem IS NULL AND (p_arguments IS NULL OR array_position(p_arguments, NULL) IS NOT NULL) THEN
        v_problem := 'its arguments are NULL, or one of them is';
    ELSIF v_problem IS NULL AND (SELECT max(octet_length(a)) FROM unnest(p_arguments) AS a) > 2 * {max_depth} THEN
        SELECT min(a.place) INTO v_place FROM unnest(p_arguments) WITH ORDINALITY AS a (text, place) WHERE windlass_is_too_deep(a.text, {max_depth});
        v_problem := 'job ' || v_place || ' of the list: its arguments are nested deeper than {max_depth} arrays and objects, and could not be decoded again; store the data elsewhere and pass a reference';
    END IF;
    IF v_problem IS NULL THEN
        BEGIN
            v_options := coalesce(options, '{braces}');
            SELECT CASE WHEN jsonb_typeof(e.value) <> 'object' THEN 'its options are not an object'
                WHEN {is wrong} OR e.value ? 'arguments' THEN coalesce({problem of types},
                    'its options have no key ' || (SELECT min(key) FROM jsonb_object_keys(e.value - ARRAY[{option keys}]) AS key))
                WHEN e.value ?| ARRAY['unique_id', 'idempotency_key'] AND cardinality(p_arguments) > 1
                THEN 'its options name one job: enqueue it alone, or use a list' END
                INTO v_problem FROM (SELECT v_options AS value) AS e;
            PERFORM count(CAST(a AS json)) FROM unnest(p_arguments) AS a;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character OR numeric_value_out_of_range THEN
            v_problem := 'its arguments or options are not JSON';
        END;
    END IF;
    IF v_problem IS NULL THEN
        SELECT r.* INTO r FROM (SELECT v_options AS value) AS e, {record};
        v_problem := {problem options};
        v_texts := array_to_string(p_arguments, E'\n');
        -- Most need no look at each.
        IF v_problem IS NULL AND ((SELECT max(octet_length(a)) FROM unnest(p_arguments) AS a) > least(2 * {max_depth}, coalesce(v_class.max_arguments, 2 * {max_depth}))
            OR strpos(v_texts, E'\\u') > 0 OR v_texts ~ '[0-9]{19}|[eE][+]?[0-9]{3}') THEN
            SELECT e.place, e.problem INTO v_place, v_problem FROM (SELECT a.place, {problem arguments a.} AS problem
                FROM unnest(p_arguments) WITH ORDINALITY AS a (arguments, place)) AS e WHERE e.problem IS NOT NULL ORDER BY e.place LIMIT 1;
            v_problem := 'job ' || v_place || ' of the list: ' || v_problem;
        END IF;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot enqueue `%`: %', left(coalesce(p_class, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_class.internal OR (v_class.internal IS NULL AND EXISTS (SELECT 1 FROM windlass_settings s WHERE s.name = 'strict_classes' AND s.value = 'on')) THEN
        PERFORM windlass_refuse_class(p_class, v_class.internal IS NULL);
    END IF;
    v_queue := coalesce(r.queue, v_class.queue_name, '{default_queue}');
    IF r.tenant IS NOT NULL THEN
        v_is_shared := EXISTS (SELECT 1 FROM windlass_fair_queues f WHERE f.queue_name = v_queue COLLATE "default" AND NOT f.is_ending);
    END IF;
    IF v_is_shared OR num_nonnulls(v_class.quota, v_class.rates) > 0
        OR v_options ?| ARRAY['unique_id', 'idempotency_key', 'concurrency_key', 'tags', 'meta', 'version', 'after_batch', 'rates'] THEN
        FOREACH v_text IN ARRAY p_arguments LOOP
            RETURN QUERY SELECT j.id FROM windlass_enqueue_any_v2(NULL, p_class, v_text, {option values r.}) AS j;
        END LOOP;
        RETURN;
    END IF;
    IF r.batch_id IS NOT NULL THEN
        PERFORM windlass_keep_batches(p_class, r.batch_id, NULL);
    END IF;
    v_priority := coalesce(r.priority, v_class.priority, 0);
    v_policy := {policy r.};
    v_once := {is once r.};
    v_attempts := {attempts r.};
    v_crashes := {crashes r.};
    v_at := coalesce(r.run_at AT TIME ZONE 'UTC', v_now + CAST(round(r.delay_seconds * 1000000) AS bigint) * interval '1 microsecond');
    WITH job AS (
        INSERT INTO solid_queue_jobs ({plain names})
        SELECT {each values} FROM unnest(p_arguments) WITH ORDINALITY AS e (arguments, place) ORDER BY e.place RETURNING id
    ), member AS (
        INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) SELECT id, r.batch_id, v_now FROM job WHERE r.batch_id IS NOT NULL
    ), added AS (
        INSERT INTO windlass_wanted_keys (kind, target_id, amount) SELECT '{batch}', r.batch_id, count(*) FROM job HAVING r.batch_id IS NOT NULL AND count(*) > 0
    ), ready AS (
        INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at)
        SELECT id, v_queue, v_priority, p_class, v_once OR coalesce(v_crashes = 0, false), v_now FROM job
        WHERE v_at IS NULL OR v_at <= v_now RETURNING 1
    ), later AS (
        INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, priority, scheduled_at, created_at)
        SELECT id, v_queue, v_priority, v_at, v_now FROM job WHERE v_at > v_now
    ), expiring AS (
        INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, {expires at j}
        FROM (SELECT job.id, v_at AS scheduled_at, CAST(v_policy AS json) -> 'expiry' AS expiry FROM job WHERE v_policy LIKE '%"expiry":%') AS j,
            (SELECT 1) AS p WHERE j.expiry IS NOT NULL
    ), woken AS (
        SELECT CASE WHEN EXISTS (SELECT 1 FROM ready) THEN {wake ready} END AS workers
    ) SELECT (SELECT array_agg(job.id ORDER BY job.id) FROM job) INTO v_ids FROM woken;
    RETURN QUERY SELECT unnest(v_ids);
END;
$$;

CREATE OR REPLACE FUNCTION windlass_enqueue_many(class text, jobs json) RETURNS SETOF bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    RETURN QUERY SELECT windlass_enqueue_many_v2(class, jobs);
END;
$$;

-- Opens a batch, to which the same transaction adds jobs by their batch_id. Without jobs, it is over at the commit.
CREATE OR REPLACE FUNCTION windlass_open_batch(name text, metadata text DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    p_name text := name COLLATE "default";
    p_metadata text := metadata COLLATE "default";
    v_problem text := {problem batch};
    v_json json;
    v_batch bigint;
BEGIN
    IF v_problem IS NULL THEN
        BEGIN
            v_json := p_metadata;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
            v_problem := 'its metadata is not JSON';
        END;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot open the batch `%`: %', left(coalesce(p_name, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO solid_queue_batches (active_job_batch_id, description, metadata, enqueued_at, created_at, updated_at)
    VALUES ('windlass-' || replace(CAST(gen_random_uuid() AS text), '-', ''), p_name, p_metadata, {now}, {now}, {now})
    RETURNING id INTO v_batch;
    INSERT INTO windlass_wanted_keys (kind, target_id) VALUES ('{batch}', v_batch);
    IF current_setting('windlass.woken_by', true) IS DISTINCT FROM CAST(statement_timestamp() AS text) THEN
        PERFORM windlass_wake();
    END IF;
    RETURN v_batch;
END;
$$;

-- Whether two texts are the same JSON, whatever the order of its fields. Numbers count by their values.
CREATE OR REPLACE FUNCTION windlass_is_same(p_first text, p_other text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN p_first = p_other OR CAST(p_first AS jsonb) = CAST(p_other AS jsonb);
EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
    RETURN false;
END;
$$;

-- Emits an event, as Rust does: jobs that wait for it run again, with its payload. An event stays: emitted once more with the
-- same payload it changes nothing, and another payload is refused.
CREATE OR REPLACE FUNCTION windlass_emit(name text, payload text DEFAULT NULL) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    p_name text := name COLLATE "default";
    p_payload text := coalesce(payload, 'null') COLLATE "default";
    v_problem text := {problem event};
    v_json json;
    v_first text;
BEGIN
    IF v_problem IS NULL THEN
        BEGIN
            v_json := p_payload;
        EXCEPTION WHEN invalid_text_representation OR untranslatable_character THEN
            v_problem := 'its payload is not JSON';
        END;
    END IF;
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot emit `%`: %', left(coalesce(p_name, ''), 80), v_problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR v_round IN 1 .. {event rounds} LOOP
        INSERT INTO windlass_events (name, payload, created_at) VALUES (p_name, p_payload, {now}) ON CONFLICT (name) DO NOTHING;
        IF NOT FOUND THEN
            SELECT e.payload INTO v_first FROM windlass_events e WHERE e.name = p_name;
            CONTINUE WHEN NOT FOUND; -- cleared meanwhile
            IF NOT windlass_is_same(v_first, p_payload) THEN
                RAISE EXCEPTION 'cannot emit `%`: it was emitted before, with another payload', left(p_name, 80)
                    USING ERRCODE = 'unique_violation', HINT = 'Events stay. Use a name that is new, with an id in it.';
            END IF;
        END IF;
        -- Also for an event that was there: another program may have deleted the request.
        INSERT INTO windlass_wanted_keys (kind, name) VALUES ('{event}', p_name);
        IF current_setting('windlass.woken_by', true) IS DISTINCT FROM CAST(statement_timestamp() AS text) THEN
            PERFORM windlass_wake();
        END IF;
        RETURN;
    END LOOP;
    RAISE EXCEPTION 'cannot emit `%`: the event of this name was cleared meanwhile', left(p_name, 80)
        USING ERRCODE = 'serialization_failure', HINT = 'Emit it again.';
END;
$$;

-- Gives each function a fixed search_path, so that it finds only the tables beside it, and takes it from PUBLIC.
{close functions}

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('{version}', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
