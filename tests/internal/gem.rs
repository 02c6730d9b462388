//! The tables as the gem for Rails makes them: `clients/ruby/lib/windlass/schema.json` is made here of the migrations.
//! After a new one, write it with `WINDLASS_WRITE_MIGRATIONS=1`.

use crate::db::conn::dialect::Dialect;
use crate::db::schema::functions::{OPEN_FUNCTIONS, close_functions};
use crate::db::schema::items::{self, Catalog, CatalogColumn, ItemKind, SchemaItem, items};
use crate::db::schema::migrations::known;
use crate::db::schema::plan::{Action, family, step};
use serde_json::{Value, json};
use std::path::Path;

/// Returns a database that has the table of an item, and nothing else.
fn lacking(item: &SchemaItem) -> Catalog {
    let column = CatalogColumn {
        of: item.table.clone(),
        name: String::new(),
        kind: String::new(),
        nullable: true,
        standard: None,
        generated: false,
    };
    let has_table = item.kind != ItemKind::Table;
    Catalog {
        columns: has_table.then_some(column).into_iter().collect(),
        others: Vec::new(),
    }
}

fn item(dialect: Dialect, item: &SchemaItem, items: &[SchemaItem]) -> Value {
    let step = step(dialect, item, items, &lacking(item)).unwrap();
    let acts = step.acts.iter().map(|act| match act {
        Action::Run(text) | Action::Index { text, .. } => text,
        Action::Define { .. } => unreachable!("a missing item is not redefined"),
    });
    let acts: Vec<&String> = acts.collect();
    let mut made = json!({
        "kind": format!("{:?}", item.kind).to_lowercase(),
        "table": item.table,
        "name": item.name,
        "what": step.what,
        "vital": step.is_vital,
        "run": acts,
    });
    if item.kind == ItemKind::Column {
        made["is"] = json!({
            "family": family(dialect, item.type_name()),
            "not_null": item.is_not_null(),
            "default": item.default(),
            "generated": item.is_generated(),
        });
    }
    made
}

fn schema(dialect: Dialect) -> Value {
    let all = items(dialect);
    let (once, items): (Vec<_>, Vec<_>) = all.iter().partition(|item| item.kind == ItemKind::Once);
    let versions = known().into_iter().map(|version| {
        let of_it = once.iter().filter(|item| item.version == version);
        json!({ "version": version, "once": of_it.map(|item| &item.statement).collect::<Vec<_>>() })
    });
    let (columns, others) = items::queries(dialect);
    let open = (dialect == Dialect::Postgres)
        .then(|| json!({ "look": OPEN_FUNCTIONS, "run": close_functions() }));
    json!({
        "open_functions": open,
        "columns": columns,
        "others": others,
        "items": items.iter().map(|one| item(dialect, one, &all)).collect::<Vec<_>>(),
        "versions": versions.collect::<Vec<_>>(),
    })
}

#[test]
fn the_schema_of_the_gem_is_that_of_the_migrations() {
    let made =
        json!({ "postgresql": schema(Dialect::Postgres), "sqlite": schema(Dialect::Sqlite) });
    let made = serde_json::to_string_pretty(&made).unwrap() + "\n";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut clients = root.map(|directory| directory.join("clients"));
    let clients = clients.find(|clients| clients.is_dir()).unwrap();
    let file = clients.join("ruby/lib/windlass/schema.json");
    if std::env::var_os("WINDLASS_WRITE_MIGRATIONS").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == made,
        "{} is not what the migrations make of it: run WINDLASS_WRITE_MIGRATIONS=1 bin/test the_schema_of_the_gem",
        file.display()
    );
}
