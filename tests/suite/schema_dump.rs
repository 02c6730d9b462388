//! Rails and Windlass may make the tables in any order: the result is the same. The snapshots hold all items of the
//! catalog, and what the tables of Rails keep of their own. The order of columns is left out: one that is added comes last.

use crate::on_each_empty_database;
use crate::schema_life::differences;
use crate::support::TestDb;
use crate::support::solid_queue;
use sha2::{Digest as _, Sha256};

const POSTGRES: &str = r"
WITH ours AS (SELECT c.oid, c.relname, c.relkind, c.reloptions, c.relacl FROM pg_class c
  WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S', 'm'))
SELECT 'table ' || relname || coalesce(' WITH (' || array_to_string(reloptions, ', ') || ')', '')
  || coalesce(' RIGHTS ' || relacl::text, '') AS t FROM ours WHERE relkind NOT IN ('v', 'S')
UNION ALL SELECT 'sequence ' || relname FROM ours WHERE relkind = 'S'
UNION ALL SELECT 'column ' || o.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '')
    || CASE a.attidentity WHEN '' THEN '' ELSE ' IDENTITY ' || a.attidentity::text END
  FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  WHERE o.relkind <> 'S' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT 'constraint ' || o.relname || '.' || k.conname || ' ' || pg_get_constraintdef(k.oid)
  FROM ours o JOIN pg_constraint k ON k.conrelid = o.oid WHERE k.contype IN ('p', 'u', 'f', 'c')
UNION ALL SELECT 'index ' || pg_get_indexdef(i.indexrelid) || CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END
  FROM ours o JOIN pg_index i ON i.indrelid = o.oid
UNION ALL SELECT 'trigger ' || pg_get_triggerdef(g.oid) || ' ' || g.tgenabled::text
  FROM ours o JOIN pg_trigger g ON g.tgrelid = o.oid WHERE NOT g.tgisinternal
UNION ALL SELECT 'view ' || relname || ' AS ' || regexp_replace(pg_get_viewdef(oid), 'windlass_enqueue_v2\.', '', 'g')
    || coalesce(' RIGHTS ' || relacl::text, '') FROM ours WHERE relkind = 'v'
UNION ALL SELECT 'function ' || p.proname || '(' || pg_get_function_arguments(p.oid) || ') RETURNS ' || pg_get_function_result(p.oid)
    || ' ' || l.lanname || ' ' || p.provolatile::text || CASE WHEN p.prosecdef THEN ' DEFINER' ELSE '' END
    || coalesce(' SET ' || array_to_string(p.proconfig, ', '), '') || coalesce(' RIGHTS ' || p.proacl::text, '') || ' ' || p.prosrc
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = current_schema()::regnamespace";

const SQLITE: &str = r#"
SELECT 'table ' || name || CASE WHEN sql LIKE '%AUTOINCREMENT%' THEN ' AUTOINCREMENT' ELSE '' END
  || CASE WHEN sql LIKE '%WITHOUT ROWID%' OR sql LIKE '%STRICT' OR sql LIKE '%CHECK%' THEN ' ' || sql ELSE '' END AS t
  FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
UNION ALL SELECT 'column ' || m.name || '.' || c.name || ' ' || c.type || CASE WHEN c."notnull" THEN ' NOT NULL' ELSE '' END
    || coalesce(' DEFAULT ' || c.dflt_value, '') || CASE WHEN c.pk THEN ' KEY ' || c.pk ELSE '' END || CASE WHEN c.hidden THEN ' HIDDEN' ELSE '' END
  FROM sqlite_schema m, pragma_table_xinfo(m.name) c WHERE m.type IN ('table', 'view')
UNION ALL SELECT 'key ' || m.name || '.' || k."from" || ' -> ' || k."table" || '.' || k."to" || ' ON DELETE ' || k.on_delete || ' ON UPDATE ' || k.on_update
  FROM sqlite_schema m, pragma_foreign_key_list(m.name) k WHERE m.type = 'table'
UNION ALL SELECT 'index of ' || m.name || ' ' || i.origin || CASE WHEN i."unique" THEN ' UNIQUE' ELSE '' END || ' ('
    || (SELECT group_concat(name, ', ') FROM (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno)) || ')'
  FROM sqlite_schema m, pragma_index_list(m.name) i WHERE m.type = 'table' AND i.origin <> 'c'
UNION ALL SELECT type || ' of ' || tbl_name || ': ' || sql FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL"#;

/// The body of a function or trigger as a digest.
fn short(line: String) -> String {
    const MOST: usize = 400;
    match line.char_indices().nth(MOST) {
        None => line,
        Some((at, _)) => {
            let digest = Sha256::digest(&line);
            let digest: String = digest
                .iter()
                .take(8)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("{} .. {digest}", &line[..at])
        }
    }
}

/// All that the database says about its schema, a line each, sorted.
fn dump(db: &TestDb) -> Vec<String> {
    let (schema, owner) = match db.is_postgres() {
        true => (
            db.texts("SELECT quote_ident(current_schema())::text AS t")
                .remove(0),
            db.texts("SELECT current_user::text AS t").remove(0),
        ),
        false => (String::new(), String::new()),
    };
    let lines = db.texts(if db.is_postgres() { POSTGRES } else { SQLITE });
    let lines = lines.into_iter().map(|text| {
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
        let line = words.join(" ");
        short(match db.is_postgres() {
            true => line
                .replace(&format!("{schema}."), "")
                .replace(&format!("search_path={schema},"), "search_path=SCHEMA,")
                .replace(&format!("{owner}="), "OWNER=")
                .replace(&format!("/{owner}"), "/OWNER"),
            false => line,
        })
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

/// Another of the same kind, where there is nothing.
fn empty(db: &TestDb) -> TestDb {
    #[cfg(feature = "postgres")]
    if db.is_postgres() {
        return TestDb::empty_postgres();
    }
    assert!(!db.is_postgres());
    TestDb::empty_sqlite()
}

fn migrate(db: &TestDb) {
    // It changes the journal mode of a file that Rails has made.
    db.forget_sessions();
    db.database.migrate().unwrap();
}

/// `create_table force: :cascade`, as `db/queue_schema.rb` has it.
fn load_schema(db: &TestDb) {
    for (table, _) in solid_queue::tables().into_iter().rev() {
        let cascade = if db.is_postgres() { " CASCADE" } else { "" };
        db.execute(&format!("DROP TABLE solid_queue_{table}{cascade}"));
    }
    solid_queue::create(db);
}

/// A name, and the changes to the tables in this order.
type Order = (&'static str, &'static [fn(&TestDb)]);

const ORDERS: [Order; 6] = [
    ("Windlass twice", &[migrate]),
    ("Rails, then Windlass", &[solid_queue::create, migrate]),
    (
        "Rails, its update, then Windlass",
        &[
            solid_queue::create_before_batches,
            solid_queue::add_batches,
            migrate,
        ],
    ),
    (
        "Rails, Windlass, then the update of Rails",
        &[
            solid_queue::create_before_batches,
            migrate,
            solid_queue::add_batches,
        ],
    ),
    (
        "Windlass, then the update of Rails",
        &[migrate, solid_queue::add_batches],
    ),
    (
        "Windlass, Rails' load of its schema, then Windlass",
        &[migrate, load_schema, migrate],
    ),
];

fn every_order_leads_to_the_same_tables(db: &TestDb) {
    migrate(db);
    let new = dump(db);
    let mut text = new.join("\n");
    for (name, steps) in ORDERS {
        let db = empty(db);
        steps.iter().for_each(|step| step(&db));
        migrate(&db);
        assert!(db.database.migrate().unwrap().is_empty(), "{name}");
        let mut own = differences(&dump(&db), &new);
        own.sort();
        text.push_str(&format!("\n\n{name}:\n{}", own.join("\n")));
    }
    let kind = if db.is_postgres() {
        "postgres"
    } else {
        "sqlite"
    };
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("schema-{kind}"), text));
}

on_each_empty_database!(every_order_leads_to_the_same_tables);
