//! Attacks of a role that may only enqueue, to get the rights of the owner of the tables.

use crate::enqueue_by_sql::postgres_roles::{Enqueuer, closed, rights};
use crate::support::TestDb;
use crate::support::db::count;
use diesel::connection::SimpleConnection as _;
use diesel::{Connection as _, PgConnection};
use windlass::schema::{self, RailsOption};

/// A function that the attacker wants the owner to call, in the attacker's temporary schema.
const TRAP: &str = "CREATE FUNCTION pg_temp.trap(v bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN \
   IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN \
     EXECUTE pg_catalog.format('ALTER ROLE %I SUPERUSER', session_user); END IF; RETURN true; END $$; \
 CREATE DOMAIN pg_temp.trapped AS bigint CHECK (pg_temp.trap(VALUE))";

/// A helper is called with types of the attacker, so that it is compiled with them.
const BY_A_TABLE: &[&str] = &[
    "CREATE TEMP TABLE windlass_unique_jobs (unique_id varchar, job_id pg_temp.trapped, scope varchar, after_job_id bigint)",
    "SET search_path = pg_temp, public",
    "SELECT windlass_enqueue_any_v2(HELPER)",
    "SET search_path = public",
    "INSERT INTO windlass_enqueue (class, unique_id) VALUES ('node', 'a')",
    "INSERT INTO windlass_enqueue (class, unique_id) VALUES ('node', 'a')",
];

const BY_A_DOMAIN: &[&str] = &[
    "CREATE DOMAIN pg_temp.json AS pg_catalog.json CHECK (pg_temp.trap(1))",
    "CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.trap(1))",
    "SET search_path = pg_temp, pg_catalog, public",
    "SELECT windlass_enqueue_job_v2(HELPER)",
    "SELECT windlass_enqueue_any_v2(HELPER)",
    "SELECT windlass_is_too_deep(repeat('[', 130), 120)",
    "RESET search_path",
    "SELECT windlass_enqueue('node', '{}')",
    "SELECT windlass_enqueue('node', '{}', unique_id => 'b')",
    "SELECT windlass_emit('node', '{}')",
    "SELECT windlass_emit('node', '{ }')",
    "SELECT windlass_is_same('{}', '{ }')",
    "SELECT windlass_enqueue_many('node', '[{\"arguments\": 1, \"unique_id\": \"c\"}]')",
];

/// The attacker's own path is in force.
const BY_A_PATH: &[&str] = &[
    "CREATE DOMAIN pg_temp.json AS pg_catalog.json CHECK (pg_temp.trap(1))",
    "CREATE TEMP VIEW solid_queue_processes AS SELECT pg_temp.trap(1) AS listening, ''::text AS channel, \
     statement_timestamp() AT TIME ZONE 'UTC' AS last_heartbeat_at",
    "CREATE TEMP VIEW windlass_settings AS SELECT ''::text AS name, pg_temp.trap(1)::text AS value",
    "CREATE TEMP VIEW windlass_classes AS SELECT ''::text AS class_name, pg_temp.trap(1) AS internal",
    "SELECT set_config('search_path', 'pg_temp, pg_catalog, public', false)",
    "INSERT INTO windlass_enqueue (class) VALUES ('node')",
    "INSERT INTO windlass_enqueue (class, unique_id, concurrency_key) VALUES ('node', 'd', 'e')",
    "SELECT windlass_enqueue(coalesce(set_config('search_path', 'pg_temp, pg_catalog, public', true), '') || 'node')",
    "CREATE TEMP VIEW windlass_events AS SELECT ''::text AS name, pg_temp.trap(1)::text AS payload",
    "SELECT windlass_enqueue_v2('node'), windlass_enqueue_many_v2('node', '[{}]')",
    "SELECT windlass_emit('node', '1')",
    "SELECT windlass_emit('node', ' 1')",
    "SELECT windlass_wake()",
    "SELECT windlass_place_of(1)",
];

/// A schema of the attacker comes before ours, with what functions of ours seem to call.
const BY_A_SCHEMA: &[&str] = &[
    "CREATE SCHEMA OWN",
    "CREATE FUNCTION OWN.octet_length(text) RETURNS integer LANGUAGE sql AS 'SELECT pg_temp.trap(1)::integer'",
    "CREATE FUNCTION OWN.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT CASE WHEN pg_temp.trap(1) THEN pg_catalog.now() END'",
    "CREATE FUNCTION OWN.joined(text, text) RETURNS text LANGUAGE sql AS 'SELECT CASE WHEN pg_temp.trap(1) THEN $1 END'",
    "CREATE OPERATOR OWN.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = OWN.joined)",
    "CREATE FUNCTION OWN.windlass_refuse_class(text, boolean) RETURNS void LANGUAGE sql AS 'SELECT pg_temp.trap(1)'",
    "CREATE DOMAIN OWN.json AS pg_catalog.json CHECK (pg_temp.trap(1))",
    "SET search_path = OWN, pg_temp, pg_catalog, public",
    "INSERT INTO windlass_enqueue (class, concurrency_key) VALUES ('node', 'f')",
    "SELECT windlass_enqueue('node', '{}', unique_id => 'g', unique_scope => 'while_waiting')",
    "SELECT windlass_enqueue_many('node', '[{\"unique_id\": \"h\"}]')",
    "SELECT windlass_enqueue_job_v2(HELPER)",
];

/// Columns that become a policy, and batches, with what their functions seem to call.
const BY_COLUMNS: &[&str] = &[
    "CREATE SCHEMA OWN",
    "CREATE FUNCTION OWN.json_typeof(pg_catalog.json) RETURNS text LANGUAGE sql AS 'SELECT pg_temp.trap(1)::text'",
    "CREATE FUNCTION OWN.to_json(anyelement) RETURNS pg_catalog.json LANGUAGE sql AS 'SELECT CASE WHEN pg_temp.trap(1) THEN pg_catalog.to_json($1) END'",
    "CREATE FUNCTION OWN.concat_ws(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS 'SELECT pg_temp.trap(1)::text'",
    "CREATE FUNCTION OWN.round(double precision) RETURNS double precision LANGUAGE sql AS 'SELECT pg_temp.trap(1)::integer::double precision'",
    "CREATE FUNCTION OWN.gen_random_uuid() RETURNS uuid LANGUAGE sql AS 'SELECT CASE WHEN pg_temp.trap(1) THEN pg_catalog.gen_random_uuid() END'",
    "CREATE FUNCTION OWN.json_array_length(pg_catalog.json) RETURNS integer LANGUAGE sql AS 'SELECT pg_temp.trap(1)::integer'",
    "CREATE FUNCTION OWN.chr(integer) RETURNS text LANGUAGE sql AS 'SELECT pg_temp.trap(1)::text'",
    "CREATE TEMP VIEW solid_queue_batches AS SELECT 1::bigint AS id, pg_temp.trap(1)::text AS active_job_batch_id, \
     now()::timestamp AS finished_at",
    "CREATE TEMP TABLE windlass_expiries (job_id pg_temp.trapped, expires_at timestamp, released_claim_id bigint)",
    "CREATE DOMAIN OWN.json AS pg_catalog.json CHECK (pg_temp.trap(1))",
    "SET search_path = OWN, pg_temp, pg_catalog, public",
    "SELECT windlass_extras('node', '[\"a\"]', '{\"b\": 1}', 2, NULL)",
    "SELECT windlass_rates_of('node', '[{\"number\": 1, \"period\": \"day\"}]')",
    "SELECT windlass_expire(1, '{\"expiry\":{\"in\":1}}')",
    "SELECT windlass_keep_batches('node', 1, 1)",
    "SELECT windlass_open_batch('node', '{}')",
    "SELECT windlass_enqueue('node', tags => '[\"a\"]', meta => '{\"b\": 1}', version => 2, backoff_seconds => 1, backoff_cap_seconds => 2)",
    "SELECT windlass_enqueue('node', expires_in_seconds => 60, not_after => NULL, tenant => 'a')",
    "SELECT windlass_enqueue('node', rates => '[{\"number\": 1, \"period\": \"day\", \"key\": \"a\"}]', concurrency_key => 'i')",
    "SELECT windlass_enqueue('node', not_after => '2999-01-01T00:00:00Z')",
    "SELECT windlass_enqueue('node', batch_id => 1), windlass_enqueue('node', after_batch => 1, runs_on => 'finish')",
    "SELECT windlass_enqueue_many('node', '[{\"tags\": [\"a\"], \"expires_in_seconds\": 5}, {\"batch_id\": 1}]')",
    "SELECT windlass_enqueue_each_v2('node', ARRAY['1', '{}'], '{\"expires_in_seconds\": 5}')",
    "SELECT windlass_enqueue_each_v2('node', ARRAY['1'], '{\"tags\": [\"a\"]}')",
    "INSERT INTO windlass_enqueue (class, meta, timeout_seconds) VALUES ('node', '{}', 5)",
];

/// The role itself becomes another, or changes what is not its own.
const BY_A_ROLE: &[&str] = &[
    "SET ROLE postgres",
    "SET SESSION AUTHORIZATION postgres",
    "ALTER VIEW windlass_enqueue_v2 ALTER COLUMN id SET DEFAULT pg_temp.trap(1)::integer",
    "ALTER TABLE solid_queue_jobs ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY mine ON solid_queue_jobs USING (pg_temp.trap(1))",
    "CREATE RULE mine AS ON INSERT TO windlass_enqueue DO ALSO SELECT pg_temp.trap(1)",
    "CREATE TRIGGER mine BEFORE INSERT ON solid_queue_jobs FOR EACH ROW EXECUTE FUNCTION pg_temp.trap()",
    "ALTER FUNCTION windlass_wake() RESET search_path",
    "ALTER TABLE solid_queue_jobs ALTER COLUMN tenant SET DEFAULT pg_temp.trap(1)::text",
    "CREATE CAST (text AS pg_catalog.json) WITH FUNCTION pg_temp.trap(bigint) AS IMPLICIT",
    "CREATE CAST (text AS bigint) WITHOUT FUNCTION AS IMPLICIT",
    "CREATE TYPE pg_temp.windlass_classes AS (class_name pg_temp.trapped)",
    "SET row_security = off",
    "SET session_replication_role = replica",
    "SELECT windlass_enqueue('node', '{}', tags => '[\"a\"]', tenant => 'b')",
    "SELECT windlass_enqueue('node', unique_id => 'z')",
];

/// The trigger of the view on a table of the attacker.
const BY_A_TRIGGER: &[&str] = &[
    "CREATE TEMP TABLE mine AS SELECT * FROM windlass_enqueue WITH NO DATA",
    "ALTER TABLE mine ALTER id TYPE pg_temp.trapped",
    "CREATE TRIGGER mine BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION windlass_insert_enqueue_v2()",
    "INSERT INTO mine (class) VALUES ('node')",
];

const ATTACKS: [&[&str]; 7] = [
    BY_A_TABLE,
    BY_A_DOMAIN,
    BY_A_PATH,
    BY_A_SCHEMA,
    BY_A_TRIGGER,
    BY_COLUMNS,
    BY_A_ROLE,
];

/// Runs an attack, of which each statement may fail, in a session of its own.
fn attack(db: &TestDb, statements: &[&str]) {
    let mut role = Enqueuer::allowed(db);
    db.execute(&format!(
        "GRANT CREATE ON DATABASE {} TO {}",
        database(db),
        role.name
    ));
    role.conn.batch_execute(TRAP).unwrap();
    let helper = "SELECT CAST(pronargs AS bigint) AS n FROM pg_proc WHERE proname = 'windlass_enqueue_job_v2'";
    let nothing = ", NULL".repeat(db.count(helper) as usize - 3);
    for statement in statements {
        let statement = statement
            .replace("HELPER", &format!("NULL, 'node', '{{}}'{nothing}"))
            .replace("OWN", &format!("own_{}", role.name));
        let _ = role.conn.batch_execute(&statement);
    }
    let is_super = format!(
        "SELECT count(*) AS n FROM pg_roles WHERE rolname = '{}' AND rolsuper",
        role.name
    );
    assert_eq!(db.count(&is_super), 0, "{statements:#?}");
    // The attack has not only failed for another reason: the role may enqueue.
    let jobs = db.rows("jobs");
    role.conn
        .batch_execute(
            "SET search_path = public; INSERT INTO windlass_enqueue (class) VALUES ('node')",
        )
        .unwrap();
    assert_eq!(db.rows("jobs"), jobs + 1);
    // Before the role can be dropped.
    role.conn
        .batch_execute(&format!("DROP OWNED BY {}", role.name))
        .unwrap();
}

fn database(db: &TestDb) -> String {
    db.texts("SELECT CAST(current_database() AS text) AS t")
        .remove(0)
}

fn with_rails_options(db: &TestDb) {
    for option in [RailsOption::WakeFromRuby, RailsOption::ActiveJobEnvelopes] {
        schema::set_rails_option(&mut db.connection(), option, true).unwrap();
    }
}

#[test]
fn no_attack_gets_the_rights_of_the_owner() {
    let db = closed();
    for statements in ATTACKS {
        attack(&db, statements);
    }
    with_rails_options(&db);
    for statements in ATTACKS {
        attack(&db, statements);
    }
}

#[test]
fn no_attack_gets_them_after_a_restore_without_rights() {
    let db = closed();
    with_rails_options(&db);
    db.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC");
    for statements in ATTACKS {
        attack(&db, statements);
    }
}

/// A collation of the caller would take an internal class for another.
#[test]
fn a_collation_of_the_caller_opens_no_internal_class() {
    let db = closed();
    for (class, internal) in [("NODE", false), ("node", true)] {
        db.execute(&format!(
            "INSERT INTO windlass_classes (class_name, queue_name, redact, internal, seen_at) \
             VALUES ('{class}', 'default', '[]', {internal}, now())"
        ));
    }
    let mut role = Enqueuer::allowed(&db);
    let collation = "CREATE COLLATION pg_temp.alike (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    if let Err(error) = role.conn.batch_execute(collation) {
        eprintln!("NOT TESTED: this server has no ICU: {error}");
        return;
    }
    for statement in [
        "SELECT windlass_enqueue('node' COLLATE pg_temp.alike)",
        "SELECT windlass_enqueue_v2('node' COLLATE pg_temp.alike, unique_id => 'a')",
        "SELECT windlass_enqueue_many('node' COLLATE pg_temp.alike, '[{}]')",
        "SELECT windlass_enqueue_many_v2('node' COLLATE pg_temp.alike, '[{\"unique_id\": \"b\"}]')",
        "INSERT INTO windlass_enqueue (class) VALUES ('node' COLLATE pg_temp.alike)",
    ] {
        let error = role.refused(statement);
        assert!(
            error.contains("its type is internal"),
            "{statement}: {error}"
        );
    }
    assert_eq!(db.rows("jobs"), 0);
}

/// Each function, those of the options for Rails too.
#[test]
fn every_function_has_a_fixed_path_and_is_called_by_its_owner_alone() {
    let schema = "In \"Quotes\"";
    for name in ["public", schema] {
        let db = closed();
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        if name != "public" {
            db.execute(&format!("ALTER SCHEMA public RENAME TO {quoted}"));
            db.execute(&format!(
                "ALTER DATABASE {} SET search_path = {}",
                database(&db),
                quoted
            ));
            db.forget_sessions();
        }
        db.database.migrate().unwrap();
        with_rails_options(&db);
        let path = if name == "public" {
            "public, pg_temp".to_owned()
        } else {
            format!("{quoted}, pg_temp")
        };
        let functions = "SELECT CAST(p.oid::regprocedure AS text) || '|' || coalesce(array_to_string(p.proconfig, ';'), '') || '|' \
             || (SELECT count(*) FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee <> p.proowner) AS t \
             FROM pg_proc p WHERE p.proname LIKE 'windlass%'";
        let found = db.texts(functions);
        assert!(found.len() > 18, "{found:?}");
        for one in found {
            assert!(one.ends_with(&format!("|search_path={path}|0")), "{one}");
        }
        assert!(db.database.migrate().unwrap().is_empty());
        db.execute("INSERT INTO windlass_enqueue (class) VALUES ('node')");
    }
}

#[test]
fn migrate_closes_what_a_restore_or_a_person_has_opened() {
    let db = closed();
    let openings = [
        (
            "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC",
            "may be called by every role",
        ),
        (
            "ALTER FUNCTION windlass_wake RESET search_path",
            "the function windlass_wake has not the fixed search_path public, pg_temp",
        ),
        (
            "ALTER FUNCTION windlass_wake SET search_path = public",
            "the function windlass_wake has not the fixed search_path public, pg_temp",
        ),
        (
            "ALTER FUNCTION windlass_enqueue_v2 SECURITY INVOKER",
            "the function windlass_enqueue_v2 has not the rights of its owner",
        ),
    ];
    assert_eq!(rights(&db), None);
    for (opening, fault) in openings {
        db.execute(opening);
        let says = rights(&db).unwrap();
        assert!(says.contains(fault), "{says}");
        assert!(says.contains("windlass migrate"), "{says}");
        let done = db.database.migrate().unwrap().completed;
        assert!(done.iter().any(|one| one.contains(fault)), "{done:?}");
        assert_eq!(rights(&db), None, "{opening}");
        assert!(db.database.migrate().unwrap().is_empty(), "{opening}");
    }
}

/// A function with the rights of its owner could be made to call an operator or a function that another role may
/// create, or has created.
#[test]
fn beside_functions_of_others_the_rights_are_those_of_the_caller() {
    let db = closed();
    let mut role = Enqueuer::allowed(&db);
    let definers = || {
        db.count("SELECT count(*) AS n FROM pg_proc WHERE proname LIKE 'windlass%' AND prosecdef")
    };
    assert_eq!(definers(), 8);
    db.execute(&format!("GRANT CREATE ON SCHEMA public TO {}", role.name));
    let says = rights(&db).unwrap();
    assert!(
        says.contains("has the rights of its owner, though other roles"),
        "{says}"
    );
    db.database.migrate().unwrap();
    assert_eq!((definers(), rights(&db)), (0, None));
    assert!(
        role.refused("INSERT INTO windlass_enqueue (class) VALUES ('node')")
            .contains("permission denied")
    );
    role.conn.batch_execute("CREATE FUNCTION public.octet_length(varchar) RETURNS integer LANGUAGE sql AS 'SELECT 1'").unwrap();
    db.execute(&format!(
        "REVOKE CREATE ON SCHEMA public FROM {}",
        role.name
    ));
    db.database.migrate().unwrap();
    assert_eq!((definers(), rights(&db)), (0, None));
    role.conn
        .batch_execute("DROP FUNCTION public.octet_length(varchar)")
        .unwrap();
    assert!(rights(&db).is_some());
    db.database.migrate().unwrap();
    assert_eq!((definers(), rights(&db)), (8, None));
    role.conn
        .batch_execute("INSERT INTO windlass_enqueue (class) VALUES ('node')")
        .unwrap();
}

/// The function that a trigger of the attacker calls.
const TRIGGER_TRAP: &str = "CREATE FUNCTION pg_temp.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
   IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN \
     EXECUTE pg_catalog.format('ALTER ROLE %I SUPERUSER', session_user); END IF; RETURN NEW; END $$";

/// Enqueues, and returns how many functions have the rights of their owner, what `doctor` says, and whether the role has
/// become superuser.
fn fired(db: &TestDb, role: &mut Enqueuer) -> (i64, Option<String>, bool) {
    let _ = role
        .conn
        .batch_execute("INSERT INTO windlass_enqueue (class) VALUES ('node')");
    let definers = "SELECT count(*) AS n FROM pg_proc WHERE proname LIKE 'windlass%' AND prosecdef";
    let supers = format!(
        "SELECT count(*) AS n FROM pg_roles WHERE rolname = '{}' AND rolsuper",
        role.name
    );
    (db.count(definers), rights(db), db.count(&supers) > 0)
}

/// A trigger of another role on a table runs with the rights of the function that writes it.
#[test]
fn beside_triggers_of_others_the_rights_are_those_of_the_caller() {
    let db = closed();
    let mut role = Enqueuer::allowed(&db);
    role.conn.batch_execute(TRIGGER_TRAP).unwrap();
    let table = "solid_queue_jobs";
    let trigger = format!(
        "CREATE TRIGGER mine BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION pg_temp.fire()"
    );
    assert!(role.refused(&trigger).contains("permission denied"));
    let name = &role.name.clone();
    let ways = [
        [
            format!("GRANT ALL ON {table} TO {name}"),
            format!("REVOKE ALL ON {table} FROM {name}"),
        ],
        [
            format!("ALTER TABLE {table} OWNER TO {name}"),
            format!("ALTER TABLE {table} OWNER TO postgres"),
        ],
    ];
    for [opening, closing] in ways {
        db.execute(&opening);
        let says = rights(&db).unwrap();
        assert!(says.contains("or triggers on its tables"), "{says}");
        db.database.migrate().unwrap();
        role.conn.batch_execute(&trigger).unwrap();
        assert_eq!(fired(&db, &mut role), (0, None, false), "{opening}");
        // The right is gone, and the trigger is not.
        db.execute(&closing);
        db.database.migrate().unwrap();
        assert_eq!(fired(&db, &mut role), (0, None, false), "{closing}");
        db.execute(&format!("DROP TRIGGER mine ON {table}"));
        db.database.migrate().unwrap();
        assert_eq!(fired(&db, &mut role), (8, None, false), "{closing}");
    }
}

/// A backup without its rights, in another database.
#[test]
fn a_restore_without_rights_is_completed_by_migrate() {
    let (db, other) = (closed(), TestDb::empty_lone_postgres());
    let programs = std::env::var("WINDLASS_TEST_POSTGRES_BIN").unwrap_or_default();
    let dump = std::process::Command::new(format!("{programs}/pg_dump"))
        .args(["--schema-only", "--no-privileges", &db.url])
        .output();
    let Ok(dump) = dump else {
        eprintln!("NOT TESTED: {programs} has no pg_dump");
        return;
    };
    assert!(dump.status.success(), "{dump:?}");
    let script = String::from_utf8(dump.stdout).unwrap();
    let script: Vec<&str> = script
        .lines()
        .filter(|line| !line.starts_with('\\'))
        .collect();
    let mut conn = PgConnection::establish(other.address()).unwrap();
    conn.batch_execute(&script.join("\n")).unwrap();
    other.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let open =
        "SELECT count(*) AS n FROM pg_proc WHERE proname LIKE 'windlass%' AND proacl IS NULL";
    assert!(count(&mut other.connection(), open) > 18);
    let versions = "INSERT INTO windlass_schema_migrations (version, applied_at) SELECT unnest(ARRAY[VERSIONS]), now() ON CONFLICT DO NOTHING";
    let applied = db.texts("SELECT CAST(version AS text) AS t FROM windlass_schema_migrations");
    let applied: Vec<String> = applied
        .iter()
        .map(|version| format!("'{version}'"))
        .collect();
    other.execute(&versions.replace("VERSIONS", &applied.join(", ")));
    assert!(
        rights(&other)
            .unwrap()
            .contains("may be called by every role")
    );
    assert!(!other.database.migrate().unwrap().completed.is_empty());
    assert_eq!(
        (count(&mut other.connection(), open), rights(&other)),
        (0, None)
    );
}
