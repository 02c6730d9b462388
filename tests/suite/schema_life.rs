//! A database that Rails and Windlass share: whatever either did to the
//! tables, `migrate` completes them, and Rails can write to them.

use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::jobs::{Log, Note};
use crate::support::program::windlass;
use crate::support::solid_queue;
use crate::support::wait::until;
use crate::{on_each_database, on_each_empty_database};
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable, Text};
use std::sync::Arc;
use windlass::errors::SchemaError;
use windlass::{AsConn, Conn, Error, Job, Registry, Worker};
use windlass_console::Verdict;

/// A column as the adapter of Active Record sees it.
#[derive(Debug, QueryableByName)]
struct Seen {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Bool)]
    nullable: bool,
    #[diesel(sql_type = Nullable<Text>)]
    standard: Option<String>,
}

fn seen(db: &TestDb, table: &str) -> Vec<Seen> {
    match db.connect().as_conn() {
        Conn::Sqlite(c) => diesel::sql_query(format!(
            "SELECT name, lower(type) AS kind, NOT \"notnull\" AS nullable, \
             CASE dflt_value WHEN 'TRUE' THEN '1' WHEN 'FALSE' THEN '0' ELSE dflt_value END AS standard \
             FROM pragma_table_info('{table}')"
        ))
        .load(c),
        #[cfg(feature = "postgres")]
        Conn::Postgres(c) => diesel::sql_query(format!(
            "SELECT column_name::text AS name, data_type::text AS kind, is_nullable = 'YES' AS nullable, \
             column_default::text AS standard FROM information_schema.columns \
             WHERE table_schema = current_schema() AND table_name = '{table}' ORDER BY ordinal_position"
        ))
        .load(c),
        _ => unreachable!(),
    }
    .unwrap()
}

/// The default that Active Record sends. Its SQLite adapter reads numbers,
/// quoted texts and NULL; any other text means no default to it.
fn sent(db: &TestDb, column: &Seen) -> Option<String> {
    let text = column.standard.as_deref()?;
    let is_number = text.parse::<f64>().is_ok();
    let is_quoted = text.starts_with('\'') || text.starts_with('"');
    let is_boolean = db.is_postgres() && ["true", "false"].contains(&text);
    (is_number || is_quoted || is_boolean).then(|| text.to_owned())
}

fn sample(kind: &str) -> &'static str {
    match kind.split('(').next().unwrap() {
        "bigint" | "integer" => "7",
        "varchar" | "character varying" | "text" => "'x'",
        "datetime" | "timestamp without time zone" => "'2026-11-21 03:36:27.384057'",
        other => panic!("no sample of the type `{other}`"),
    }
}

/// Every column is named in the INSERT, as with `partial_inserts` off, the
/// default of Rails since 7.0. What Solid Queue itself sets has a value.
pub fn rails_inserts_into_every_table(db: &TestDb) {
    db.execute("DELETE FROM solid_queue_jobs");
    for (table, theirs) in solid_queue::tables() {
        let table = format!("solid_queue_{table}");
        let (mut names, mut values) = (vec!["id".to_owned()], vec!["7".to_owned()]);
        for column in seen(db, &table) {
            let is_set = theirs
                .iter()
                .any(|one| one.name == column.name && !one.nullable);
            let value = match sent(db, &column) {
                Some(standard) => standard,
                None if is_set && !column.nullable && column.standard.is_none() => {
                    sample(&column.kind).to_owned()
                }
                None => "NULL".to_owned(),
            };
            if column.name != "id" {
                names.push(column.name);
                values.push(value);
            }
        }
        db.execute(&format!(
            "INSERT INTO {table} ({}) VALUES ({})",
            names.join(", "),
            values.join(", ")
        ));
        assert_eq!(db.rows_of(&table), 1, "{table}");
    }
    for table in solid_queue::tables().into_iter().rev() {
        db.execute(&format!("DELETE FROM solid_queue_{}", table.0));
    }
}

/// A word is no default to the adapter of Active Record for SQLite.
fn with_words_as_defaults(db: &TestDb) {
    if db.is_postgres() {
        return;
    }
    let mut connection = db.connect();
    execute(&mut connection, "PRAGMA writable_schema = ON");
    for (now, before) in [("0", "false"), ("1", "true")] {
        execute(
            &mut connection,
            &format!(
                "UPDATE sqlite_schema SET sql = replace(sql, 'boolean NOT NULL DEFAULT {now}', \
                 'boolean NOT NULL DEFAULT {before}') WHERE type = 'table'"
            ),
        );
    }
    execute(&mut connection, "PRAGMA writable_schema = RESET");
}

fn rails_inserts_into_new_tables(db: &TestDb) {
    rails_inserts_into_every_table(db);
}

fn rails_inserts_into_tables_of_its_own(db: &TestDb) {
    solid_queue::create(db);
    db.database.migrate().unwrap();
    rails_inserts_into_every_table(db);
}

fn rails_inserts_into_tables_whose_defaults_were_words(db: &TestDb) {
    Note::new("kept").enqueue(&mut db.connection()).unwrap();
    with_words_as_defaults(db);
    let shape = |db: &TestDb| format!("{:?}", db.columns());
    if !db.is_postgres() {
        assert!(shape(db).contains("\"false\""), "{}", shape(db));
    }
    db.database.migrate().unwrap();
    assert!(
        db.is_postgres() || !shape(db).contains("\"false\""),
        "{}",
        shape(db)
    );
    works(db);
    rails_inserts_into_every_table(db);
}

/// A job is enqueued and performed, and the doctor finds nothing.
pub fn works(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).start().unwrap();
    Note::new("ours").enqueue(&mut db.connection()).unwrap();
    until("a job is done", || log.lines().contains(&"ours".to_owned()));
    until("nothing is claimed", || db.rows("claimed_executions") == 0);
    drop(worker);
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    let schema = findings.iter().find(|one| one.check == "schema").unwrap();
    assert_eq!(schema.verdict, Verdict::Fine, "{}", schema.says);
}

/// Everything there is about the tables, with the order of columns and the
/// types aside: those are as Rails chose.
pub fn names(db: &TestDb) -> Vec<String> {
    let mut names: Vec<String> = db
        .columns()
        .iter()
        .map(|one| {
            format!(
                "{}.{} {} {:?} {}",
                one.table,
                one.name,
                one.nullable,
                one.default
                    .as_deref()
                    .filter(|text| !text.starts_with("nextval")),
                one.is_generated
            )
        })
        .collect();
    names.sort();
    names.extend(db.unique_indexes());
    names.extend(db.texts(if db.is_postgres() {
        "SELECT tgname::text AS t FROM pg_trigger WHERE tgrelid = 'solid_queue_jobs'::regclass AND NOT tgisinternal \
         UNION ALL SELECT viewname::text FROM pg_views WHERE schemaname = current_schema() \
         UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace \
         UNION ALL SELECT indexname::text FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1"
    } else {
        "SELECT name AS t FROM sqlite_schema WHERE type IN ('index', 'trigger', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY 1"
    }));
    names
}

pub fn differences(is: &[String], expected: &[String]) -> Vec<String> {
    let lacks = expected
        .iter()
        .filter(|one| !is.contains(one))
        .map(|one| format!("- {one}"));
    let more = is
        .iter()
        .filter(|one| !expected.contains(one))
        .map(|one| format!("+ {one}"));
    lacks.chain(more).collect()
}

/// `create_table force: :cascade`, as `db/queue_schema.rb` has it.
fn a_schema_load_of_rails_is_completed(db: &TestDb) {
    let whole = names(db);
    Note::new("goes with the tables")
        .enqueue(&mut db.connection())
        .unwrap();
    for (table, _) in solid_queue::tables().into_iter().rev() {
        let cascade = if db.is_postgres() { " CASCADE" } else { "" };
        db.execute(&format!("DROP TABLE solid_queue_{table}{cascade}"));
    }
    solid_queue::create(db);
    // The migration changes the journal mode of the file.
    db.forget_sessions();
    db.database.migrate().unwrap();
    assert_eq!(differences(&names(db), &whole), Vec::<String>::new());
    works(db);
    rails_inserts_into_every_table(db);
}

/// `db/schema.rb` lacks identities, triggers and functions, rows, and on SQLite
/// a default that is the word `false`.
fn a_schema_that_rails_dumped_is_completed(db: &TestDb) {
    let whole = names(db);
    db.execute("DELETE FROM windlass_schema_migrations");
    if db.is_postgres() {
        db.execute("DROP FUNCTION windlass_take_along() CASCADE");
        for table in [
            "windlass_attempts",
            "windlass_waiters",
            "windlass_wanted_keys",
            "solid_queue_jobs",
        ] {
            db.execute(&format!(
                "ALTER TABLE {table} ALTER COLUMN id DROP IDENTITY"
            ));
        }
        db.execute("ALTER TABLE solid_queue_jobs RESET (fillfactor)");
    } else {
        let mut connection = db.connect();
        execute(&mut connection, "PRAGMA writable_schema = ON");
        execute(
            &mut connection,
            "UPDATE sqlite_schema SET sql = replace(sql, 'boolean NOT NULL DEFAULT 0', 'boolean NOT NULL')",
        );
        execute(&mut connection, "PRAGMA writable_schema = RESET");
    }
    assert!(names(db) != whole);
    db.database.migrate().unwrap();
    assert_eq!(differences(&names(db), &whole), Vec::<String>::new());
    works(db);
    rails_inserts_into_every_table(db);
}

fn drop_one(db: &TestDb, drop: &str) {
    if !db.is_postgres() && drop.contains("DROP COLUMN") {
        // SQLite drops no column that an index has, or a trigger of a view.
        for view in db.texts("SELECT name AS t FROM sqlite_schema WHERE type = 'view'") {
            db.execute(&format!("DROP VIEW {view}"));
        }
        let words: Vec<&str> = drop.split(' ').collect();
        let (table, column) = (words[2], words[5]);
        for index in db.texts(&format!(
            "SELECT name AS t FROM sqlite_schema WHERE tbl_name = '{table}' AND type = 'index' AND sql LIKE '%{column}%'"
        )) {
            db.execute(&format!("DROP INDEX {index}"));
        }
        for trigger in db.texts(&format!(
            "SELECT name AS t FROM sqlite_schema WHERE type = 'trigger' AND sql LIKE '%{column}%'"
        )) {
            db.execute(&format!("DROP TRIGGER {trigger}"));
        }
    }
    match db.is_postgres() && drop.contains("DROP COLUMN") {
        // With the triggers that read it.
        true => db.execute(&format!("{drop} CASCADE")),
        false => db.execute(drop),
    };
}

/// Each column and index of our own and each of our tables: what is dropped
/// comes back, and is named.
fn whatever_is_missing_is_completed(db: &TestDb) {
    let whole = names(db);
    let theirs = solid_queue::tables();
    let mut drops = Vec::new();
    for column in db.columns() {
        let Some(table) = column.table.strip_prefix("solid_queue_") else {
            drops.push(format!("DROP TABLE {}", column.table));
            continue;
        };
        let (_, known) = theirs.iter().find(|one| one.0 == table).unwrap();
        if column.name != "id" && !known.iter().any(|one| one.name == column.name) {
            drops.push(format!(
                "ALTER TABLE {} DROP COLUMN {}",
                column.table, column.name
            ));
        }
    }
    drops.dedup();
    for index in whole.iter().filter(|one| one.starts_with("index_")) {
        drops.push(format!("DROP INDEX IF EXISTS {index}"));
    }
    assert!(drops.len() > 50, "{drops:?}");
    for drops in drops.chunks(8) {
        for drop in drops {
            drop_one(db, drop);
        }
        assert!(names(db) != whole, "{drops:?}");
        let done = db.database.migrate().unwrap();
        for drop in drops {
            let name = drop.rsplit(' ').next().unwrap();
            assert!(
                done.completed.iter().any(|line| line.contains(name)),
                "{drop}: {done:?}"
            );
        }
        assert_eq!(
            differences(&names(db), &whole),
            Vec::<String>::new(),
            "{drops:?}"
        );
        assert!(db.database.migrate().unwrap().is_empty(), "{drops:?}");
    }
    works(db);
}

/// Additions of Ruby or the application stay, and disturb nothing.
fn what_others_added_is_left_alone(db: &TestDb) {
    db.execute("ALTER TABLE solid_queue_jobs ADD COLUMN tenant_id bigint");
    db.execute(
        "CREATE TABLE solid_queue_tenants (id bigint PRIMARY KEY, description text NOT NULL)",
    );
    db.execute("INSERT INTO solid_queue_tenants VALUES (1, 'x')");
    assert!(db.database.migrate().unwrap().is_empty());
    drop_one(db, "ALTER TABLE solid_queue_jobs DROP COLUMN policy");
    let completed = db.database.migrate().unwrap().completed;
    let of_tables = |line: &&String| !line.contains(" view ") && !line.contains(" of windlass_");
    assert_eq!(
        completed.iter().filter(of_tables).collect::<Vec<_>>(),
        ["the column solid_queue_jobs.policy is missing"]
    );
    assert_eq!(db.rows("tenants"), 1);
    works(db);
}

fn a_process_refuses_incomplete_tables(db: &TestDb) {
    let start = || Worker::new(&db.database, Registry::new()).start().map(drop);
    db.execute("DROP INDEX index_solid_queue_poll_all");
    start().expect("an index makes things fast, and nothing else");
    db.execute("ALTER TABLE windlass_results DROP COLUMN progress");
    let error = start().unwrap_err();
    let missing = "the column windlass_results.progress is missing";
    assert!(
        matches!(&error, Error::Schema(SchemaError::Incomplete { missing: named, .. }) if named == missing),
        "{error:?}"
    );
    assert!(error.to_string().contains("windlass migrate"), "{error}");
    let said = windlass(&db.url, &["doctor"]);
    assert!(
        said.out.contains(missing) && said.out.contains("run `windlass migrate`"),
        "{said:?}"
    );
    let said = windlass(&db.url, &["migrate", "--dry-run"]);
    assert!(said.out.starts_with("Would add or change in "), "{said:?}");
    let added = missing.trim_end_matches(" is missing");
    assert!(said.out.contains(&format!("\n  {added}\n")), "{said:?}");
    let said = windlass(&db.url, &["migrate", "--dry-run", "--json"]).json();
    assert_eq!(said["applied"], serde_json::json!([]));
    assert_eq!(said["completed"][0], missing);
    assert_eq!(said["completed"].as_array().unwrap().len(), 2);
    start().expect_err("it was left as it is");
    let said = windlass(&db.url, &["migrate"]);
    assert!(said.out.starts_with("Added or changed in "), "{said:?}");
    assert!(said.out.contains(added), "{said:?}");
    start().unwrap();
    works(db);
}

on_each_database!(
    whatever_is_missing_is_completed,
    what_others_added_is_left_alone,
    a_process_refuses_incomplete_tables,
    rails_inserts_into_new_tables,
    rails_inserts_into_tables_whose_defaults_were_words,
    a_schema_load_of_rails_is_completed,
    a_schema_that_rails_dumped_is_completed,
);

on_each_empty_database!(rails_inserts_into_tables_of_its_own);
