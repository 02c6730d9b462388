-- How many jobs were enqueued under a quota in a window. Each connection counts in rows of its own,
-- so that no enqueue waits for the transaction of another: `slot` is the process id of its server
-- process, and 0 on SQLite. Windows are rows of their own, and a later one never changes an earlier.
CREATE TABLE windlass_quota_counts (
    quota varchar NOT NULL,
    per varchar NOT NULL,
    starts_at timestamp(6) NOT NULL,
    slot bigint NOT NULL,
    jobs bigint NOT NULL,
    limits text NOT NULL,
    PRIMARY KEY (quota, per, starts_at, slot)
);

-- The jobs of quotas that limit how many wait. Rows of jobs that do not wait are deleted now and then.
CREATE TABLE windlass_quota_jobs (
    job_id bigint PRIMARY KEY NOT NULL,
    quota varchar NOT NULL
);
CREATE INDEX index_windlass_quota_jobs_on_quota ON windlass_quota_jobs (quota, job_id);

-- A count changes with each enqueue: with room on its page the new version needs no entry in the index.
ALTER TABLE windlass_quota_counts SET (fillfactor = 50);

-- Admits up to `wanted` jobs of a quota, and counts them. What others have admitted and not committed
-- is in no row that can be seen: each transaction has a shared advisory lock for it, whose number is
-- the minute (7 bits) and how many jobs it has admitted in that minute (24 bits). Such locks make no
-- other transaction wait, and go with the transaction or savepoint.
--
-- A short exclusive lock lets connections decide one after another. It is a lock of the session, as
-- one of the transaction would be held until the commit; it is given back whatever happens, and after
-- a second a connection decides without it.
CREATE FUNCTION windlass_admit_quota (
    quota_name text, wanted bigint, most_waiting bigint, most_a_minute bigint, most_a_day bigint, declared text,
    OUT admitted bigint, OUT waiting bigint, OUT a_minute bigint, OUT a_day bigint,
    OUT to_minute double precision, OUT to_day double precision
) LANGUAGE plpgsql AS $$
DECLARE
    class integer := hashtext('windlass_quota_counts'::regclass::oid::text || ' ' || quota_name);
    class_id oid := (class::bigint & 4294967295)::oid;
    database_id oid := (SELECT oid FROM pg_database WHERE datname = current_database());
    moment timestamp := clock_timestamp() AT TIME ZONE 'UTC';
    minute_start timestamp := date_trunc('minute', moment);
    day_start timestamp := date_trunc('day', moment);
    minute_number integer := ((extract(epoch FROM minute_start) / 60)::bigint % 128)::integer;
    minutes_today integer := (extract(epoch FROM minute_start - day_start) / 60)::integer;
    variable text := 'windlass.quota_' || to_hex(class);
    deadline timestamptz := clock_timestamp() + interval '1 second';
    is_held boolean := false;
    is_crowded boolean := false;
    open_all bigint;
    open_minute bigint;
    open_day bigint;
    seen text;
    seen_before text;
    kept text;
    total bigint;
    step bigint := 1;
BEGIN
    waiting := 0;
    a_minute := 0;
    a_day := 0;
    to_minute := extract(epoch FROM minute_start + interval '1 minute' - moment);
    to_day := extract(epoch FROM day_start + interval '1 day' - moment);
    BEGIN
        LOOP
            is_held := pg_try_advisory_lock(class, -1);
            EXIT WHEN is_held OR clock_timestamp() > deadline;
            PERFORM pg_sleep(0.0005);
        END LOOP;
        FOR round IN 1..50 LOOP
            seen_before := seen;
            SELECT coalesce(sum(jobs), 0), coalesce(sum(jobs) FILTER (WHERE age = 0), 0),
                coalesce(sum(jobs) FILTER (WHERE age <= minutes_today), 0),
                string_agg(holder || ' ' || age || ' ' || jobs, ',' ORDER BY holder, age)
            INTO open_all, open_minute, open_day, seen
            FROM (SELECT virtualtransaction AS holder,
                    (minute_number - (objid::bigint >> 24) + 128) % 128 AS age,
                    max(objid::bigint & 16777215) AS jobs
                FROM pg_locks WHERE locktype = 'advisory' AND database = database_id AND classid = class_id
                AND objsubid = 2 AND mode = 'ShareLock' AND pid <> pg_backend_pid() GROUP BY 1, 2) AS reserved;
            -- The same open transactions before and after: what was counted is what there is.
            EXIT WHEN round > 1 AND seen IS NOT DISTINCT FROM seen_before;
            -- By a statement after that one: what has been committed since is counted twice, never not at all.
            IF most_a_minute IS NOT NULL THEN
                SELECT coalesce(sum(c.jobs), 0) INTO a_minute FROM windlass_quota_counts c WHERE c.quota = quota_name
                AND c.per = 'minute' AND c.starts_at > moment - interval '1 minute' AND c.starts_at <= moment;
            END IF;
            IF most_a_day IS NOT NULL THEN
                SELECT coalesce(sum(c.jobs), 0) INTO a_day FROM windlass_quota_counts c WHERE c.quota = quota_name
                AND c.per = 'day' AND c.starts_at > moment - interval '1 day' AND c.starts_at <= moment;
            END IF;
            IF most_waiting IS NOT NULL THEN
                SELECT count(*) INTO waiting FROM windlass_quota_jobs q WHERE q.quota = quota_name;
                IF waiting + open_all + wanted > most_waiting THEN
                    is_crowded := true;
                    SELECT count(*) INTO waiting FROM windlass_quota_jobs q WHERE q.quota = quota_name
                    AND (EXISTS (SELECT 1 FROM solid_queue_ready_executions e WHERE e.job_id = q.job_id)
                        OR EXISTS (SELECT 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = q.job_id)
                        OR EXISTS (SELECT 1 FROM solid_queue_blocked_executions e WHERE e.job_id = q.job_id));
                END IF;
            END IF;
            waiting := waiting + open_all;
            a_minute := a_minute + open_minute;
            a_day := a_day + open_day;
            admitted := greatest(0, least(wanted, most_waiting - waiting, most_a_minute - a_minute, most_a_day - a_day));
            EXIT WHEN admitted = wanted OR seen IS NULL;
            -- A transaction that has just been committed has its lock for a moment longer.
            PERFORM pg_sleep(0.001);
        END LOOP;
        IF admitted > 0 THEN
            kept := current_setting(variable, true);
            total := admitted;
            IF split_part(kept, ':', 1) = minute_number::text THEN
                total := total + split_part(kept, ':', 2)::bigint;
            END IF;
            PERFORM set_config(variable, minute_number || ':' || total, true);
            -- A transaction with many enqueues has few locks: it reserves up to 1 % more than it needs.
            WHILE step * 200 <= total LOOP
                step := step * 2;
            END LOOP;
            total := least(16777215, (total + step - 1) / step * step);
            PERFORM pg_advisory_xact_lock_shared(class, (minute_number << 24) | total::integer);
        END IF;
        IF is_held THEN
            PERFORM pg_advisory_unlock(class, -1);
            is_held := false;
        END IF;
    EXCEPTION WHEN query_canceled OR OTHERS THEN
        IF is_held THEN
            PERFORM pg_advisory_unlock(class, -1);
        END IF;
        RAISE;
    END;
    IF admitted = 0 THEN
        RETURN;
    END IF;
    INSERT INTO windlass_quota_counts (quota, per, starts_at, slot, jobs, limits)
    VALUES (quota_name, 'minute', minute_start, pg_backend_pid(), admitted, declared),
        (quota_name, 'day', day_start, pg_backend_pid(), admitted, declared)
    ON CONFLICT (quota, per, starts_at, slot)
    DO UPDATE SET jobs = windlass_quota_counts.jobs + excluded.jobs, limits = excluded.limits;
    -- Under a stricter level, a row that another transaction has deleted would be an error.
    IF is_crowded AND current_setting('transaction_isolation') = 'read committed' THEN
        DELETE FROM windlass_quota_jobs WHERE job_id IN (
            SELECT q.job_id FROM windlass_quota_jobs q WHERE q.quota = quota_name
            AND NOT EXISTS (SELECT 1 FROM solid_queue_ready_executions e WHERE e.job_id = q.job_id)
            AND NOT EXISTS (SELECT 1 FROM solid_queue_scheduled_executions e WHERE e.job_id = q.job_id)
            AND NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions e WHERE e.job_id = q.job_id)
            ORDER BY q.job_id FOR UPDATE SKIP LOCKED);
    END IF;
END
$$;

INSERT INTO windlass_schema_migrations (version, applied_at)
VALUES ('20261124000001', statement_timestamp() AT TIME ZONE 'UTC')
ON CONFLICT (version) DO NOTHING;
