//! The rights of a role that only enqueues.

use crate::support::TestDb;
use crate::support::db::{count, execute, postgres_server};
use diesel::connection::SimpleConnection as _;
use diesel::{Connection as _, PgConnection};

/// A role that may log in to the server, and its connection with the schema of the test.
pub(super) struct Enqueuer {
    pub(super) name: String,
    pub(super) conn: PgConnection,
}

/// A migrated database in whose schema other roles create nothing, as is the default from Postgres 15 on.
pub(super) fn closed() -> TestDb {
    let db = TestDb::postgres();
    db.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    db.database.migrate().unwrap();
    db
}

/// Returns the finding of `doctor` about the rights of the functions.
pub(super) fn rights(db: &TestDb) -> Option<String> {
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    let mut findings = findings.into_iter();
    let rights = findings.find(|finding| finding.check == "rights");
    rights.map(|finding| finding.says)
}

impl Enqueuer {
    fn new(db: &TestDb) -> Self {
        let name = format!("enqueuer_{:016x}", fastrand::u64(..));
        db.execute(&format!("CREATE ROLE {name} LOGIN"));
        let schema = &db.texts("SELECT current_schema()::text AS t")[0];
        db.execute(&format!("GRANT USAGE ON SCHEMA {schema} TO {name}"));
        let url = db.address().replacen("postgres@", &format!("{name}@"), 1);
        let conn = PgConnection::establish(&url).unwrap();
        Enqueuer { name, conn }
    }

    /// A role that may enqueue in each way.
    pub(super) fn allowed(db: &TestDb) -> Self {
        let role = Self::new(db);
        let name = &role.name;
        db.execute(&format!(
            "GRANT INSERT, SELECT ON windlass_enqueue TO {name}"
        ));
        db.execute(&format!(
            "GRANT EXECUTE ON FUNCTION windlass_enqueue, windlass_enqueue_many, windlass_enqueue_v2, \
             windlass_enqueue_many_v2, windlass_enqueue_each_v2, windlass_emit, windlass_open_batch TO {name}"
        ));
        role
    }

    pub(super) fn refused(&mut self, statement: &str) -> String {
        self.conn.batch_execute(statement).unwrap_err().to_string()
    }
}

impl Drop for Enqueuer {
    fn drop(&mut self) {
        if let Ok(mut conn) = PgConnection::establish(&postgres_server()) {
            let drop = format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name);
            let _ = conn.batch_execute(&drop);
        }
    }
}

const BY_VIEW: &str =
    "INSERT INTO windlass_enqueue (class, unique_id, on_conflict) VALUES ('note', 'a', 'replace')";
const BY_CALL: &str = "SELECT windlass_enqueue('note', concurrency_key => 'a')";
const BY_LIST: &str = "SELECT windlass_enqueue_many('note', '[{}]')";

#[test]
fn a_role_may_enqueue_and_nothing_else() {
    let db = closed();
    let mut role = Enqueuer::new(&db);
    for statement in [BY_VIEW, BY_CALL, BY_LIST] {
        assert!(role.refused(statement).contains("permission denied"));
    }
    db.execute(&format!(
        "GRANT INSERT, SELECT ON windlass_enqueue TO {}",
        role.name
    ));
    db.execute(&format!(
        "GRANT EXECUTE ON FUNCTION windlass_enqueue, windlass_enqueue_many TO {}",
        role.name
    ));
    for statement in [BY_VIEW, BY_VIEW, BY_CALL, BY_LIST] {
        role.conn.batch_execute(statement).unwrap();
    }
    assert_eq!(db.rows("jobs"), 3);
    for statement in [
        "SELECT * FROM solid_queue_jobs",
        "DELETE FROM solid_queue_ready_executions",
        "INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) VALUES ('b', 1, 'until_finished')",
        "SELECT windlass_emit('a')",
        "SELECT windlass_open_batch('a')",
        "SELECT windlass_extras('note', '[]', '{}', 1, NULL)",
        "SELECT windlass_rates_of('note', '[]')",
        &format!(
            "SELECT windlass_enqueue_job_v2(NULL, 'note'{})",
            ", NULL".repeat(32)
        ),
    ] {
        assert!(
            role.refused(statement).contains("permission denied"),
            "{statement}"
        );
    }
}

#[test]
fn a_role_may_emit_and_nothing_else() {
    let db = closed();
    let mut role = Enqueuer::new(&db);
    let emit = "SELECT windlass_emit('paid/7', '{\"cents\": 700}')";
    assert!(role.refused(emit).contains("permission denied"));
    db.execute(&format!(
        "GRANT EXECUTE ON FUNCTION windlass_emit TO {}",
        role.name
    ));
    role.conn.batch_execute(emit).unwrap();
    assert_eq!(db.rows_of("windlass_events"), 1);
    for statement in [
        "SELECT * FROM windlass_events",
        "INSERT INTO windlass_events (name, payload, created_at) VALUES ('a', '1', now())",
        "SELECT windlass_is_same('1', '1')",
        "SELECT windlass_wake()",
        BY_CALL,
        BY_VIEW,
    ] {
        assert!(
            role.refused(statement).contains("permission denied"),
            "{statement}"
        );
    }
}

/// The clients call what has a version.
#[test]
fn a_role_of_a_client_needs_only_its_functions() {
    let db = closed();
    let mut role = Enqueuer::new(&db);
    let by_call = "SELECT windlass_enqueue_v2(class => 'note', unique_id => 'a')";
    let by_list = "SELECT windlass_enqueue_many_v2(class => 'note', jobs => '[{}]')";
    for statement in [by_call, by_list] {
        assert!(role.refused(statement).contains("permission denied"));
    }
    db.execute(&format!(
        "GRANT EXECUTE ON FUNCTION windlass_enqueue_v2, windlass_enqueue_many_v2 TO {}",
        role.name
    ));
    for statement in [by_call, by_list] {
        role.conn.batch_execute(statement).unwrap();
    }
    assert_eq!(db.rows("jobs"), 2);
}

#[test]
fn a_temporary_table_of_the_caller_is_not_written() {
    let db = closed();
    let mut role = Enqueuer::new(&db);
    db.execute(&format!(
        "GRANT INSERT ON windlass_enqueue TO {}",
        role.name
    ));
    role.conn
        .batch_execute(
            "CREATE TEMPORARY TABLE solid_queue_ready_executions (job_id bigint, queue_name text, priority integer, \
             class_name text, cautious boolean, created_at timestamp)",
        )
        .unwrap();
    execute(
        &mut role.conn,
        "INSERT INTO windlass_enqueue (class) VALUES ('note')",
    );
    assert_eq!(
        count(
            &mut role.conn,
            "SELECT count(*) AS n FROM pg_temp.solid_queue_ready_executions"
        ),
        0
    );
    assert_eq!(db.rows("ready_executions"), 1);
}

#[test]
fn a_caller_without_the_schema_in_its_path_enqueues_into_it() {
    let db = TestDb::empty_postgres();
    db.database.migrate().unwrap();
    let schema = &db.texts("SELECT current_schema()::text AS t")[0];
    let mut conn = PgConnection::establish(&postgres_server()).unwrap();
    for statement in [
        format!("INSERT INTO {schema}.windlass_enqueue (class) VALUES ('note')"),
        format!("SELECT {schema}.windlass_enqueue('note', unique_id => 'a')"),
        format!("SELECT {schema}.windlass_enqueue_many('note', '[{{}}]')"),
    ] {
        execute(&mut conn, &statement);
    }
    assert_eq!((db.rows("jobs"), db.rows("ready_executions")), (3, 3));
}

#[test]
fn the_id_and_the_outcome_come_back() {
    let db = closed();
    let returning = |on_conflict: &str| {
        let text = format!(
            "INSERT INTO windlass_enqueue (class, unique_id, on_conflict) VALUES ('note', 'a', '{on_conflict}') \
             RETURNING outcome || ' ' || id AS t"
        );
        db.texts(&text).remove(0)
    };
    let job = "SELECT CAST(max(id) AS text) AS t FROM solid_queue_jobs";
    assert_eq!(returning("existing"), format!("new {}", db.texts(job)[0]));
    let id = &db.texts(job)[0];
    assert_eq!(returning("existing"), format!("existing {id}"));
    assert_eq!(returning("replace"), format!("replaced {id}"));
    let called = db.texts("SELECT CAST(windlass_enqueue('note', unique_id => 'a') AS text) AS t");
    assert_eq!(called, std::slice::from_ref(id));
}

/// A function with the rights of its owner could be made to call an operator, if every role may create one.
#[test]
fn where_everybody_may_create_functions_the_caller_needs_rights() {
    let db = TestDb::empty_postgres();
    let schema = &db.texts("SELECT current_schema()::text AS t")[0];
    db.execute(&format!("GRANT CREATE ON SCHEMA {schema} TO PUBLIC"));
    db.database.migrate().unwrap();
    let definers = "SELECT count(*) AS n FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef";
    assert_eq!(db.count(definers), 0);
    db.execute(BY_VIEW);
    let mut role = Enqueuer::new(&db);
    db.execute(&format!(
        "GRANT INSERT, SELECT ON windlass_enqueue TO {}",
        role.name
    ));
    assert!(role.refused(BY_VIEW).contains("permission denied"));
}

#[test]
fn an_old_way_to_write_texts_changes_nothing() {
    let db = closed();
    let mut conn = db.connect();
    execute(&mut conn, "SET standard_conforming_strings = off");
    execute(&mut conn, BY_VIEW);
    execute(&mut conn, BY_LIST);
    execute(
        &mut conn,
        "INSERT INTO windlass_enqueue (class, arguments) VALUES ('note', repeat('[', 120) || repeat(']', 120))",
    );
    assert_eq!(db.rows("jobs"), 3);
}

#[test]
fn what_was_dropped_comes_back_with_its_rights() {
    let db = closed();
    let functions = "SELECT p.proname::text || ' ' || coalesce(array_to_string(p.proconfig, ';'), '') || ' ' \
           || has_function_privilege('pg_monitor', p.oid, 'EXECUTE') AS t \
         FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace AND p.prosecdef ORDER BY 1";
    let whole = db.texts(functions);
    assert_eq!(whole.len(), 8);
    assert!(
        whole
            .iter()
            .all(|one| one.contains(", pg_temp") && one.ends_with("false")),
        "{whole:?}"
    );
    for drop in [
        "DROP FUNCTION windlass_enqueue_many_v2",
        "DROP FUNCTION windlass_insert_enqueue_v2 CASCADE",
        "DROP VIEW windlass_enqueue_v2 CASCADE",
        "DROP FUNCTION windlass_enqueue",
    ] {
        db.execute(drop);
        assert!(
            !db.database.migrate().unwrap().completed.is_empty(),
            "{drop}"
        );
        assert_eq!(db.texts(functions), whole, "{drop}");
        for statement in [BY_VIEW, BY_CALL, BY_LIST] {
            db.execute(statement);
        }
    }
}
