//! What the gem of Ruby needs to complete a database: generated here from the migrations.
//!
//! After a new migration, write it with `WINDLASS_WRITE_MIGRATIONS=1`.

use crate::db::conn::dialect::Dialect;
use crate::db::schema::action::{Action, PlanStep};
use crate::db::schema::catalog::{Catalog, CatalogColumn};
use crate::db::schema::migrations;
use crate::db::schema::plan::SchemaPlan;
use crate::db::schema::reference::{self, ItemKind};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// What a database lacks that has these tables, with nothing but an id.
fn plan(dialect: Dialect, tables: &BTreeSet<String>) -> SchemaPlan {
    let column = |table: &String| CatalogColumn {
        of: table.clone(),
        name: "id".to_owned(),
        kind: "bigint".to_owned(),
        nullable: false,
        standard: None,
        generated: true,
    };
    let catalog = Catalog {
        columns: tables.iter().map(column).collect(),
        others: Vec::new(),
    };
    SchemaPlan::new(
        dialect,
        &migrations::texts(dialect),
        &BTreeSet::new(),
        &catalog,
    )
}

fn statements(step: &PlanStep) -> Vec<&str> {
    let texts = step.acts.iter().filter_map(|act| match act {
        Action::Run(text) | Action::Index { text, .. } => Some(text.as_str()),
        Action::Define { .. } => None,
    });
    texts.collect()
}

/// The kind, the name and the table of an item.
fn item(what: &str) -> Value {
    let (kind, rest) = what.split_once(' ').unwrap();
    match (kind, rest.split_once(" of "), rest.split_once('.')) {
        ("table" | "view" | "function", ..) => json!([kind, rest, null]),
        ("column", _, Some((table, column))) => json!([kind, column, table]),
        ("index" | "trigger", Some((name, table)), _) => json!([kind, name, table]),
        _ => {
            let (name, table) = what.split_once(" of ").unwrap();
            json!(["option", name, table])
        }
    }
}

fn of(dialect: Dialect) -> Value {
    let files = migrations::texts(dialect);
    let all = reference::items(files.into_iter());
    let tables = all.iter().filter(|item| item.kind == ItemKind::Table);
    let tables: BTreeSet<String> = tables.map(|item| item.name.clone()).collect();
    let nothing = plan(dialect, &BTreeSet::from(["elsewhere".to_owned()]));
    let bare = plan(dialect, &tables);
    let is_table = |step: &&PlanStep| {
        step.what
            .as_ref()
            .is_some_and(|what| what.starts_with("table "))
    };
    let is_id = |step: &&PlanStep| step.what.as_ref().is_some_and(|what| what.ends_with(".id"));
    let made = nothing.steps.iter().filter(is_table);
    let made = made.chain(bare.steps.iter().filter(|step| !is_id(step)));
    let (mut items, mut versions) = (Vec::new(), Map::new());
    for step in made {
        match &step.what {
            Some(what) => items.push(json!({"item": item(what), "statements": statements(step)})),
            None => {
                let version = versions.entry(&step.version).or_insert_with(|| json!([]));
                let texts = statements(step).into_iter().map(Value::from);
                version.as_array_mut().unwrap().extend(texts);
            }
        }
    }
    json!({"items": items, "versions": versions})
}

#[test]
fn the_gem_has_the_schema() {
    let path = "../../clients/ruby/lib/windlass/schema.json";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let schema = json!({"postgres": of(Dialect::Postgres), "sqlite": of(Dialect::Sqlite)});
    let schema = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("WINDLASS_WRITE_MIGRATIONS").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == schema,
        "{} is of other migrations: write it",
        path.display()
    );
}
