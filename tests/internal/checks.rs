//! The invariants, asked of the database itself, and what it says of each job.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{execute, kept_texts, texts};
use crate::db::table::semaphores;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text};

/// Writes down every begin and end of a claim, and every second finish.
pub fn audit(conn: &mut Conn<'_>) {
    let text = match conn {
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => {
            "CREATE TABLE audit (id bigint, what text, PRIMARY KEY (id, what)); \
             CREATE TRIGGER audit_begin AFTER INSERT ON solid_queue_claimed_executions \
               BEGIN INSERT INTO audit VALUES (NEW.id, 'begun'); END; \
             CREATE TRIGGER audit_end AFTER DELETE ON solid_queue_claimed_executions \
               BEGIN INSERT INTO audit VALUES (OLD.id, 'ended'); END; \
             CREATE TRIGGER audit_finish AFTER UPDATE OF finished_at ON solid_queue_jobs \
               WHEN OLD.finished_at IS NOT NULL \
               BEGIN INSERT INTO audit VALUES (OLD.id, 'finished twice'); END;"
        }
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => {
            "CREATE TABLE audit (id bigint, what text, PRIMARY KEY (id, what)); \
             CREATE FUNCTION audit_begin() RETURNS trigger LANGUAGE plpgsql AS \
               $$BEGIN INSERT INTO audit VALUES (NEW.id, 'begun'); RETURN NULL; END$$; \
             CREATE FUNCTION audit_end() RETURNS trigger LANGUAGE plpgsql AS \
               $$BEGIN INSERT INTO audit VALUES (OLD.id, 'ended'); RETURN NULL; END$$; \
             CREATE FUNCTION audit_finish() RETURNS trigger LANGUAGE plpgsql AS \
               $$BEGIN INSERT INTO audit VALUES (OLD.id, 'finished twice'); RETURN NULL; END$$; \
             CREATE TRIGGER audit_begin AFTER INSERT ON solid_queue_claimed_executions \
               FOR EACH ROW EXECUTE FUNCTION audit_begin(); \
             CREATE TRIGGER audit_end AFTER DELETE ON solid_queue_claimed_executions \
               FOR EACH ROW EXECUTE FUNCTION audit_end(); \
             CREATE TRIGGER audit_finish AFTER UPDATE OF finished_at ON solid_queue_jobs \
               FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL) EXECUTE FUNCTION audit_finish();"
        }
    };
    execute(conn, text);
    #[cfg(feature = "postgres")]
    if matches!(conn, Conn::Postgres(_)) {
        prepare_to_keep(conn);
    }
}

/// Makes the tables `kept_..`, where [`keep`] puts the rows, and `empty_..`, with the rows of now, and the functions by which
/// [`restore`] and [`clear`] take rows from there. Ids go on from where they were, so that the same steps make the same
/// rows.
#[cfg(feature = "postgres")]
fn prepare_to_keep(conn: &mut Conn<'_>) {
    let tables = "SELECT CAST(tablename AS text) AS t FROM pg_tables WHERE schemaname = current_schema() \
         AND (tablename LIKE 'solid\\_queue\\_%' OR tablename LIKE 'windlass\\_%' OR tablename = 'audit')";
    let tables = texts(conn, tables);
    prepare_to_look(conn, &tables);
    let last_ids = "CREATE VIEW audit_sequences AS SELECT oid, pg_sequence_last_value(oid) AS last FROM pg_class \
         WHERE relkind = 'S' AND relnamespace = CAST(current_schema() AS regnamespace)";
    execute(conn, last_ids);
    for place in ["kept", "empty"] {
        let (mut clear, mut fill) = (String::new(), String::new());
        for table in &tables {
            execute(
                conn,
                &format!("CREATE UNLOGGED TABLE {place}_{table} AS TABLE {table}"),
            );
            clear += &format!("DELETE FROM {table}; ");
            fill += &format!("INSERT INTO {table} TABLE {place}_{table}; ");
        }
        let functions = format!(
            "CREATE UNLOGGED TABLE {place}_sequences AS TABLE audit_sequences; \
             CREATE FUNCTION audit_restore_{place}() RETURNS void LANGUAGE plpgsql AS $$BEGIN {clear} {fill} \
               PERFORM setval(oid, coalesce(last, 1), last IS NOT NULL) FROM {place}_sequences; END$$;"
        );
        execute(conn, &functions);
    }
    let keep = |table: &String| {
        format!("DELETE FROM kept_{table}; INSERT INTO kept_{table} TABLE {table}; ")
    };
    let keep: String = tables.iter().map(keep).collect();
    let function = format!(
        "CREATE FUNCTION audit_keep() RETURNS void LANGUAGE plpgsql AS $$BEGIN {keep} \
           DELETE FROM kept_sequences; INSERT INTO kept_sequences TABLE audit_sequences; END$$"
    );
    execute(conn, &function);
}

/// Creates the function that [`look`] calls. Of a time, it returns only on which side of now it is.
#[cfg(feature = "postgres")]
fn prepare_to_look(conn: &mut Conn<'_>, tables: &[String]) {
    let rows: Vec<String> = tables.iter().map(|table| {
        let columns = format!(
            "SELECT CASE WHEN data_type LIKE 'timestamp%' \
               THEN 'CAST(' || column_name || ' > statement_timestamp() AT TIME ZONE ''UTC'' AS text)' \
               WHEN data_type = 'bigint' AND column_name LIKE '%\\_at' THEN column_name || ' IS NULL' \
               ELSE CAST(column_name AS text) END AS t \
             FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = '{table}' \
             ORDER BY ordinal_position"
        );
        let columns = texts(conn, &columns).join(", ");
        format!("SELECT '{table}' || CAST(ROW({columns}) AS text) AS t FROM {table}")
    }).collect();
    let function = format!(
        "CREATE FUNCTION audit_look() RETURNS text LANGUAGE plpgsql AS $$BEGIN \
           RETURN (SELECT string_agg(t, chr(10) ORDER BY t) FROM ({}) AS rows); END$$",
        rows.join(" UNION ALL ")
    );
    execute(conn, &function);
}

/// All rows that are committed, but for their times, which differ from run to run.
pub fn look(conn: &mut Conn<'_>) -> String {
    kept_texts(conn, "SELECT coalesce(audit_look(), '') AS t").concat()
}

/// The last id of each table, of what is not committed too.
pub fn last_ids(conn: &mut Conn<'_>) -> String {
    let text = "SELECT coalesce(string_agg(coalesce(CAST(last AS text), ''), ' ' ORDER BY oid), '') AS t FROM audit_sequences";
    kept_texts(conn, text).concat()
}

/// Keeps all rows for [`restore`]. `false` on SQLite, which has no way to insert without triggers.
pub fn keep(conn: &mut Conn<'_>) -> bool {
    match conn {
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => false,
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => {
            execute(conn, "SELECT audit_keep()");
            true
        }
    }
}

/// Puts the rows that were kept in the place of all others, on an untriggered connection.
pub fn restore(conn: &mut Conn<'_>) {
    execute(conn, "SELECT audit_restore_kept()");
}

/// Takes everything away, on an untriggered connection. On SQLite, ids go on from where they were.
pub fn clear(conn: &mut Conn<'_>) {
    match conn {
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => execute(conn, &format!("BEGIN; {CLEAR} COMMIT")),
        // A connection plans its statements once.
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => execute(conn, "SELECT audit_restore_empty()"),
    }
}

#[cfg(feature = "sqlite")]
const CLEAR: &str = "DELETE FROM windlass_waits; DELETE FROM windlass_steps; DELETE FROM windlass_events; DELETE FROM solid_queue_batch_executions; \
    DELETE FROM solid_queue_batches; DELETE FROM windlass_edges; DELETE FROM windlass_batch_failures; \
    DELETE FROM solid_queue_ready_executions; DELETE FROM solid_queue_scheduled_executions; \
    DELETE FROM solid_queue_claimed_executions; DELETE FROM solid_queue_failed_executions; \
    DELETE FROM solid_queue_jobs; DELETE FROM solid_queue_processes; DELETE FROM solid_queue_pauses; \
    DELETE FROM solid_queue_recurring_tasks; DELETE FROM windlass_attempts; DELETE FROM windlass_results; \
    DELETE FROM windlass_unique_jobs; DELETE FROM windlass_wanted_keys; DELETE FROM windlass_operations; \
    DELETE FROM windlass_class_pauses; DELETE FROM windlass_limits; DELETE FROM solid_queue_blocked_executions; \
    DELETE FROM windlass_lines; DELETE FROM windlass_rates; DELETE FROM windlass_fair_queues; DELETE FROM windlass_shares; \
    DELETE FROM windlass_tenants; \
    DELETE FROM audit;";

const VIOLATIONS: &str = "
    SELECT 'B1: job ' || e.job_id || ' has ended and not left its batch' AS t FROM solid_queue_batch_executions e
      LEFT JOIN solid_queue_jobs j ON j.id = e.job_id WHERE j.id IS NULL OR j.finished_at IS NOT NULL
      OR EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = e.job_id)
    UNION ALL
    SELECT 'B2: batch ' || b.id || ' has no job left, and no promotion was requested' FROM solid_queue_batches b
      WHERE b.finished_at IS NULL AND b.active_job_batch_id LIKE 'windlass-%'
      AND NOT EXISTS (SELECT 1 FROM solid_queue_batch_executions e WHERE e.batch_id = b.id)
      AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys w WHERE w.kind = 'batch' AND w.target_id = b.id)
    UNION ALL
    SELECT 'B3: job ' || x.job_id || ' waits for a batch that is over, and no promotion was requested'
      FROM solid_queue_blocked_executions x WHERE x.concurrency_key = '  '
      AND NOT EXISTS (SELECT 1 FROM windlass_edges w WHERE w.child_job_id = x.job_id AND (w.outcome IS NULL OR w.otherwise = 'wait'))
      AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys k WHERE k.kind = 'after' AND k.target_id = x.job_id)
    UNION ALL
    SELECT 'B5: job ' || w.child_job_id || ' waits for job ' || w.parent_job_id || ', which has ended, and no promotion was requested'
      FROM windlass_edges w JOIN solid_queue_blocked_executions x ON x.job_id = w.child_job_id AND x.concurrency_key = '  '
      LEFT JOIN solid_queue_jobs j ON j.id = w.parent_job_id
      WHERE w.parent_job_id IS NOT NULL AND w.outcome IS NULL AND (j.id IS NULL OR j.finished_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id))
      AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys k WHERE k.kind = 'ended' AND k.target_id = w.parent_job_id)
    UNION ALL
    SELECT 'B4: batch ' || b.id || ' is over while jobs of it are open' FROM solid_queue_batches b
      WHERE b.finished_at IS NOT NULL AND EXISTS (SELECT 1 FROM solid_queue_batch_executions e WHERE e.batch_id = b.id)
    UNION ALL
    SELECT 'W1: job ' || b.job_id || ' waits for an event without saying which' FROM solid_queue_blocked_executions b
      WHERE b.concurrency_key = '   ' AND NOT EXISTS (SELECT 1 FROM windlass_waits w WHERE w.job_id = b.job_id)
    UNION ALL
    SELECT 'W2: job ' || w.job_id || ' does not wait for its event' FROM windlass_waits w
      WHERE NOT EXISTS (SELECT 1 FROM solid_queue_blocked_executions b WHERE b.job_id = w.job_id AND b.concurrency_key = '   ')
    UNION ALL
    SELECT 'W3: job ' || w.job_id || ' waits for an event that was emitted, and no promotion was requested'
      FROM windlass_waits w JOIN windlass_events e ON e.name = w.event_name
      WHERE NOT EXISTS (SELECT 1 FROM windlass_wanted_keys k
        WHERE k.kind = 'wait' AND k.target_id = w.job_id OR k.kind = 'event' AND k.name = w.event_name)
    UNION ALL
    SELECT 'G1: job ' || b.job_id || ' waits in a line that no promotion looks at' FROM solid_queue_blocked_executions b
      WHERE b.gate IS NOT NULL AND NOT EXISTS (SELECT 1 FROM windlass_wanted_keys k WHERE k.kind = 'gate' AND k.name = b.gate)
      AND NOT EXISTS (SELECT 1 FROM windlass_rates r WHERE r.rate_key = b.gate AND r.due_at IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM windlass_lines l JOIN windlass_rates r ON r.rate_key = l.gate_key
        WHERE l.line = b.gate AND l.gate_kind = 'rate' AND r.due_at IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM windlass_lines l WHERE l.line = b.gate AND l.gate_kind = 'limit')
      AND NOT EXISTS (SELECT 1 FROM windlass_lines l JOIN windlass_fair_queues q ON q.queue_name = l.gate_key
        WHERE l.line = b.gate AND l.gate_kind = 'share' AND q.due_at IS NOT NULL)
    UNION ALL
    SELECT 'I1: job ' || id || ' is in ' || places || ' places' AS t FROM (
      SELECT id, CASE WHEN finished_at IS NULL THEN 0 ELSE 1 END
        + (SELECT count(*) FROM solid_queue_ready_executions WHERE job_id = j.id)
        + (SELECT count(*) FROM solid_queue_claimed_executions WHERE job_id = j.id)
        + (SELECT count(*) FROM solid_queue_scheduled_executions WHERE job_id = j.id)
        + (SELECT count(*) FROM solid_queue_blocked_executions WHERE job_id = j.id)
        + (SELECT count(*) FROM solid_queue_failed_executions WHERE job_id = j.id) AS places
      FROM solid_queue_jobs j) AS counted WHERE places <> 1
    UNION ALL
    SELECT 'I1: execution of job ' || job_id || ', which does not exist' FROM (
      SELECT job_id FROM solid_queue_ready_executions UNION ALL SELECT job_id FROM solid_queue_claimed_executions
      UNION ALL SELECT job_id FROM solid_queue_scheduled_executions UNION ALL SELECT job_id FROM solid_queue_failed_executions
    ) AS e WHERE NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.id = e.job_id)
    UNION ALL
    SELECT 'I1: the execution of job ' || j.id || ' differs from it in queue, priority or class'
    FROM solid_queue_jobs j LEFT JOIN solid_queue_ready_executions r ON r.job_id = j.id
      LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id
      LEFT JOIN solid_queue_blocked_executions b ON b.job_id = j.id
    WHERE coalesce(r.queue_name, s.queue_name, b.queue_name, j.queue_name) <> j.queue_name
      OR coalesce(r.priority, s.priority, j.priority) <> j.priority OR coalesce(r.class_name, j.class_name) <> j.class_name
    UNION ALL
    SELECT 'I2: claim ' || id || ' belongs to no process' FROM solid_queue_claimed_executions c
    WHERE NOT EXISTS (SELECT 1 FROM solid_queue_processes p WHERE p.id = c.process_id)
    UNION ALL
    SELECT 'I3: job ' || id || ' was ' || what FROM audit WHERE what = 'finished twice'
    UNION ALL
    SELECT 'I3: claim ' || id || ' is neither held nor ended' FROM audit WHERE what = 'begun'
      AND NOT EXISTS (SELECT 1 FROM audit e WHERE e.id = audit.id AND e.what = 'ended')
      AND NOT EXISTS (SELECT 1 FROM solid_queue_claimed_executions c WHERE c.id = audit.id)
    UNION ALL
    SELECT 'I3: claim ' || id || ' is held though it has ended' FROM solid_queue_claimed_executions c
    WHERE EXISTS (SELECT 1 FROM audit e WHERE e.id = c.id AND e.what = 'ended')
    UNION ALL
    SELECT 'I7: unique id ' || unique_id || ' is held by ' || count(*) || ' jobs' FROM solid_queue_jobs j
    WHERE unique_id IS NOT NULL AND coalesce(policy, '') NOT LIKE '%unique_scope%' AND (
      EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE job_id = j.id)
      OR EXISTS (SELECT 1 FROM solid_queue_scheduled_executions WHERE job_id = j.id)
      OR EXISTS (SELECT 1 FROM solid_queue_claimed_executions WHERE job_id = j.id))
    GROUP BY unique_id HAVING count(*) > 1
    UNION ALL
    SELECT 'I8: job ' || id || ' has crashed ' || crash_count || ' times' FROM solid_queue_jobs
    WHERE crash_count > coalesce(max_crashes, 3) + 1 OR attempts > coalesce(max_attempts, attempts)";

/// Returns the violated invariants of the committed rows.
pub fn violations(conn: &mut Conn<'_>) -> Vec<String> {
    let mut violations = kept_texts(conn, VIOLATIONS);
    violations.extend(semaphores::check(conn).unwrap());
    violations
}

/// The state of a job in a database.
#[derive(QueryableByName, Debug, Clone, PartialEq)]
pub struct JobRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    /// `ready`, `claimed`, .., all of them without a gap if there are more.
    #[diesel(sql_type = Text)]
    pub place: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub claim_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub process_id: Option<i64>,
    /// From its making to the due time of a scheduled execution.
    #[diesel(sql_type = Nullable<Double>)]
    pub delay: Option<f64>,
    #[diesel(sql_type = Bool)]
    pub due: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub error: Option<String>,
    #[diesel(sql_type = Integer)]
    pub attempts: i32,
    #[diesel(sql_type = Integer)]
    pub crash_count: i32,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub last_claim_id: Option<i64>,
    /// Attempts that are written down.
    #[diesel(sql_type = BigInt)]
    pub attempts_kept: i64,
    /// True if its process is asked to end it.
    #[diesel(sql_type = Bool)]
    pub cancelled: bool,
    /// The values with which the job was enqueued.
    #[diesel(sql_type = Text)]
    pub fixed: String,
    /// Changes with everything that is done to the job.
    #[diesel(sql_type = Text)]
    pub times: String,
}

/// Every job, the oldest first.
pub fn jobs(conn: &mut Conn<'_>) -> Vec<JobRow> {
    let (delay, due) = match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(_) => (
            "extract(epoch FROM s.scheduled_at - s.created_at)::float8",
            "s.scheduled_at <= statement_timestamp() AT TIME ZONE 'UTC'",
        ),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => (
            "(julianday(s.scheduled_at) - julianday(s.created_at)) * 86400.0",
            "s.scheduled_at <= strftime('%Y-%m-%d %H:%M:%f000', 'now')",
        ),
    };
    let text = format!(
        "SELECT j.id, CASE WHEN r.id IS NULL THEN '' ELSE 'ready' END || CASE WHEN c.id IS NULL THEN '' ELSE 'claimed' END
           || CASE WHEN s.id IS NULL THEN '' ELSE 'scheduled' END || CASE WHEN f.id IS NULL THEN '' ELSE 'failed' END
           || CASE WHEN b.id IS NULL THEN '' ELSE 'blocked' END || CASE WHEN j.finished_at IS NULL THEN '' ELSE 'finished' END AS place,
         c.id AS claim_id, c.process_id, {delay} AS delay, coalesce({due}, false) AS due, f.error,
         j.attempts, j.crash_count, j.last_claim_id, c.cancel_requested_at IS NOT NULL AS cancelled,
         (SELECT count(*) FROM windlass_attempts a WHERE a.job_id = j.id) AS attempts_kept,
         j.queue_name || ' ' || j.class_name || ' ' || j.priority || ' ' || coalesce(j.arguments, '')
           || ' ' || CASE WHEN j.at_most_once THEN 'once' ELSE '' END
           || ' ' || coalesce(CAST(j.max_crashes AS text), '') || ' ' || coalesce(j.idempotency_key, '')
           || ' ' || coalesce(j.unique_id, '') AS fixed,
         coalesce(CAST(j.updated_at AS text), '') || ' ' || coalesce(CAST(j.finished_at AS text), '')
           || ' ' || coalesce(CAST(j.scheduled_at AS text), '') || ' ' || coalesce(CAST(c.started_at AS text), '')
           || ' ' || coalesce(CAST(r.id AS text), '') || ' ' || coalesce(CAST(s.id AS text), '') AS times
         FROM solid_queue_jobs j LEFT JOIN solid_queue_ready_executions r ON r.job_id = j.id
         LEFT JOIN solid_queue_claimed_executions c ON c.job_id = j.id
         LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id
         LEFT JOIN solid_queue_blocked_executions b ON b.job_id = j.id
         LEFT JOIN solid_queue_failed_executions f ON f.job_id = j.id ORDER BY j.id"
    );
    crate::db::conn::statement::Statement::new(text)
        .load(conn)
        .unwrap()
}

/// The state of a process in a database.
#[derive(QueryableByName, Debug, Clone, PartialEq)]
pub struct ProcessRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = BigInt)]
    pub heartbeat_seq: i64,
    #[diesel(sql_type = Bool)]
    pub draining: bool,
}

/// Every process, the oldest first.
pub fn processes(conn: &mut Conn<'_>) -> Vec<ProcessRow> {
    let text =
        "SELECT id, heartbeat_seq, draining FROM solid_queue_processes ORDER BY id".to_owned();
    crate::db::conn::statement::Statement::new(text)
        .load(conn)
        .unwrap()
}
