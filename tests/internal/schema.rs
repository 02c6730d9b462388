//! The parts of a database, as they are read from the migrations.

use crate::db::conn::connection::AsConn as _;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::schema::items::{Catalog, ItemKind, SchemaItem, items};
use std::collections::BTreeSet;

/// Returns the parts of a kind, as `table.name`.
fn named(items: &[SchemaItem], kind: ItemKind) -> BTreeSet<String> {
    let items = items.iter().filter(|item| item.kind == kind);
    items
        .map(|item| format!("{}.{}", item.table, item.name))
        .collect()
}

/// A statement of another form would be forgotten in a database that Rails made.
fn the_parts_are_all_that_a_database_has(db: &TestDb) {
    let conn = &mut db.connect();
    let conn = &mut conn.as_conn();
    let items = items(conn.dialect());
    let catalog = Catalog::read(conn).unwrap();
    let columns = catalog.columns.iter();
    let columns: BTreeSet<String> = columns
        .map(|one| format!("{}.{}", one.of, one.name))
        .collect();
    assert_eq!(named(&items, ItemKind::Column), columns);
    for (kind, item) in [
        ("index", ItemKind::Index),
        ("view", ItemKind::View),
        ("function", ItemKind::Function),
        ("trigger", ItemKind::Trigger),
        ("option", ItemKind::Option),
    ] {
        // Those of keys are made with their tables, and tests audit claims; a view of SQLite is said to be its own table.
        let others = catalog.others.iter().filter(|one| {
            one.kind == kind
                && !one.name.ends_with("_pkey")
                && !one.name.starts_with("sqlite_autoindex_")
                && !one.name.starts_with("RI_ConstraintTrigger_")
                && !one.name.starts_with("audit_")
        });
        let of = |one: &str| {
            if kind == "view" {
                String::new()
            } else {
                one.to_owned()
            }
        };
        let others = others.map(|one| format!("{}.{}", of(&one.of), one.name));
        assert_eq!(named(&items, item), others.collect(), "{kind}");
    }
    let once = items.iter().filter(|item| item.kind == ItemKind::Once);
    for item in once {
        let is_known = ["INSERT INTO windlass_schema_migrations", "DO $$"]
            .iter()
            .any(|start| item.statement.starts_with(start));
        assert!(is_known, "{}", item.statement);
    }
}

/// Each table has a comment that says what it is for.
#[test]
fn each_table_has_a_comment() {
    use crate::db::conn::dialect::Dialect;
    for dialect in [Dialect::Postgres, Dialect::Sqlite] {
        for (version, text) in crate::db::schema::migrations::texts(dialect) {
            let lines: Vec<&str> = text.lines().collect();
            for two in lines.windows(2) {
                let is_table = two[1].starts_with("CREATE TABLE");
                assert!(
                    !is_table || two[0].starts_with("-- "),
                    "{version}: {}",
                    two[1]
                );
            }
        }
    }
}

on_each_database!(the_parts_are_all_that_a_database_has);
