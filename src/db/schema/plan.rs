//! The parts that a database lacks, and the statements that complete it.

use crate::db::conn::dialect::Dialect;
use crate::db::schema::functions::close_functions;
use crate::db::schema::items::{Catalog, CatalogColumn, ItemKind, SchemaItem, items};
use crate::db::schema::migrations::known;
use std::collections::BTreeSet;

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Run(String),
    /// Gives a column another definition, where SQL has no statement for it.
    Define {
        table: String,
        column: String,
        definition: String,
    },
    /// Makes an index; on a large table without blocking writers.
    Index {
        name: String,
        text: String,
        is_there: bool,
    },
}

/// One thing that a database lacks.
#[derive(Debug)]
pub struct PlanStep {
    /// As in `the {what} {fault}`. `None` for a statement that runs once.
    pub(crate) what: Option<String>,
    pub(crate) fault: String,
    /// The version of its migration.
    pub(crate) version: String,
    /// The existing table that is changed.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) table: Option<String>,
    /// Empty if a person has to do it.
    pub(crate) acts: Vec<Action>,
    /// True if programs cannot work without it.
    pub(crate) is_vital: bool,
}

impl PlanStep {
    #[doc(hidden)]
    pub fn says(&self) -> Option<String> {
        let what = self.what.as_ref()?;
        Some(format!("the {what} {}", self.fault))
    }
}

/// Everything that a database lacks.
#[derive(Debug, Default)]
pub(crate) struct SchemaPlan {
    /// The versions of the migrations that were not applied.
    pub(crate) versions: Vec<String>,
    pub(crate) steps: Vec<PlanStep>,
    /// True if no table exists yet.
    pub(crate) is_fresh: bool,
}

impl SchemaPlan {
    pub(crate) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.steps.is_empty()
    }

    /// Compares what exists with what the migrations lead to.
    pub(crate) fn new(dialect: Dialect, applied: &BTreeSet<String>, catalog: &Catalog) -> Self {
        let known = known();
        let versions: Vec<String> = known.difference(applied).cloned().collect();
        let (mut steps, is_fresh) = (Vec::new(), catalog.is_empty());
        // A newer program may have replaced items of this one. In an empty database, the migrations
        // themselves run.
        if !is_fresh && (applied.is_subset(&known) || !versions.is_empty()) {
            let items = items(dialect);
            let wanted = items
                .iter()
                .filter(|item| item.kind != ItemKind::Once || versions.contains(&item.version));
            steps.extend(wanted.filter_map(|item| step(dialect, item, &items, catalog)));
        }
        // The parts that programs need most are named first. An index comes after its column.
        steps.sort_by_key(|step| !step.is_vital);
        SchemaPlan {
            versions,
            steps,
            is_fresh,
        }
    }
}

/// A part that a database lacks: its name, its fault, the statements, and whether it is vital.
type Lack = (String, String, Vec<Action>, bool);

/// Returns what has to be done for an item. `None` if it exists.
pub(crate) fn step(
    dialect: Dialect,
    item: &SchemaItem,
    items: &[SchemaItem],
    catalog: &Catalog,
) -> Option<PlanStep> {
    let (what, fault, acts, is_vital) = lack(dialect, item, items, catalog)?;
    Some(PlanStep {
        what: (item.kind != ItemKind::Once).then_some(what),
        fault,
        version: item.version.clone(),
        table: catalog.has_table(&item.table).then(|| item.table.clone()),
        acts,
        is_vital,
    })
}

fn lack(
    dialect: Dialect,
    item: &SchemaItem,
    items: &[SchemaItem],
    catalog: &Catalog,
) -> Option<Lack> {
    let SchemaItem {
        table,
        name,
        statement,
        ..
    } = item;
    let has_table = catalog.has_table(table);
    let run = |text: &str| Action::Run(text.to_owned());
    let missing = |what: String, acts| Some((what, "is missing".to_owned(), acts, true));
    match item.kind {
        ItemKind::Table if has_table => None,
        ItemKind::Table => missing(format!("table {table}"), create(table, items)),
        ItemKind::Column if !has_table => None,
        ItemKind::Column => match catalog.column(table, name) {
            Some(found) => differing(dialect, item, found),
            None => {
                let add = format!("ALTER TABLE {table} ADD COLUMN {name} {}", item.definition);
                missing(format!("column {table}.{name}"), vec![Action::Run(add)])
            }
        },
        ItemKind::Index => index(item, catalog),
        ItemKind::Option if catalog.has_option(table, name) => None,
        ItemKind::View if catalog.other("view", name).is_some() => None,
        ItemKind::Function if catalog.other("function", name).is_some() => None,
        ItemKind::Trigger if catalog.other("trigger", name).is_some() => None,
        ItemKind::View => missing(format!("view {name}"), vec![run(statement)]),
        ItemKind::Function => missing(
            format!("function {name}"),
            vec![run(statement), Action::Run(close_functions())],
        ),
        ItemKind::Trigger => missing(format!("trigger {name} of {table}"), vec![run(statement)]),
        ItemKind::Option | ItemKind::Once => Some((
            format!("{name} of {table}"),
            "is missing".to_owned(),
            vec![run(statement)],
            false,
        )),
    }
}

/// Returns the statements that make a table with all its columns.
fn create(table: &str, items: &[SchemaItem]) -> Vec<Action> {
    let parts = items.iter().filter(|one| {
        one.table == table && [ItemKind::Table, ItemKind::Column].contains(&one.kind)
    });
    let mut statements: Vec<&String> = parts.map(|one| &one.statement).collect();
    statements.dedup();
    statements.into_iter().cloned().map(Action::Run).collect()
}

fn index(item: &SchemaItem, catalog: &Catalog) -> Option<Lack> {
    let found = catalog.other("index", &item.name);
    if found.is_some_and(|found| found.valid) {
        return None;
    }
    let act = Action::Index {
        name: item.name.clone(),
        text: item.statement.clone(),
        is_there: found.is_some(),
    };
    let what = format!("index {} of {}", item.name, item.table);
    let fault = found.map_or("is missing", |_| "is not valid");
    Some((what, fault.to_owned(), vec![act], item.is_unique()))
}

/// Returns the name of the types that are compatible with this one.
pub(crate) fn family(dialect: Dialect, kind: &str) -> &str {
    let kind = kind.split('(').next().unwrap_or(kind).trim();
    match (dialect, kind) {
        (_, "varchar" | "character varying" | "text" | "char" | "character") => "text",
        (_, "timestamp" | "timestamp without time zone" | "datetime") => "timestamp",
        (Dialect::Sqlite, "integer" | "bigint" | "boolean" | "int") => "integer",
        (_, kind) => kind,
    }
}

/// Returns what an existing column lacks, if it differs from its definition.
fn differing(dialect: Dialect, item: &SchemaItem, found: &CatalogColumn) -> Option<Lack> {
    let SchemaItem { table, name, .. } = item;
    if family(dialect, item.type_name()) != family(dialect, &found.kind) {
        let fault = format!("is {}, not {}", found.kind, item.type_name());
        return Some((format!("column {table}.{name}"), fault, Vec::new(), true));
    }
    if item.is_generated() {
        return (!found.generated).then(|| generating(dialect, table, name));
    }
    let standard = found.standard.as_deref();
    let standard = standard.map(|text| text.split("::").next().unwrap_or(text));
    let default = item.default();
    let other_default = default.filter(|_| standard != default);
    let is_loose = item.is_not_null() && found.nullable && default.is_some();
    let is_strict = !item.is_not_null() && !found.nullable;
    let (what, fault) = if let Some(default) = other_default {
        let fault = standard.map(|is| format!("is {is}, not {default}"));
        ("default of", fault.unwrap_or("is missing".to_owned()))
    } else if is_loose {
        ("column", "allows NULL".to_owned())
    } else if is_strict {
        ("column", "does not allow NULL".to_owned())
    } else {
        return None;
    };
    let default = default.unwrap_or("NULL");
    let fill = format!("UPDATE {table} SET {name} = {default} WHERE {name} IS NULL");
    let fill = is_loose.then_some(Action::Run(fill));
    let alter = |is_wanted: bool, how: &str| {
        let text = format!("ALTER TABLE {table} ALTER COLUMN {name} {how}");
        is_wanted.then_some(Action::Run(text))
    };
    let define = Action::Define {
        table: table.clone(),
        column: name.clone(),
        definition: item.definition.clone(),
    };
    let acts = match dialect {
        Dialect::Sqlite => vec![fill, Some(define)],
        Dialect::Postgres => vec![
            alter(other_default.is_some(), &format!("SET DEFAULT {default}")),
            fill,
            alter(is_loose, "SET NOT NULL"),
            alter(is_strict, "DROP NOT NULL"),
        ],
    };
    let acts = acts.into_iter().flatten().collect();
    Some((format!("{what} {table}.{name}"), fault, acts, is_strict))
}

/// Returns the step for a missing id generator: the database has to generate ids, and never the
/// same twice. They continue after the largest one.
fn generating(dialect: Dialect, table: &str, column: &str) -> Lack {
    let (what, texts) = match dialect {
        Dialect::Sqlite => ("AUTOINCREMENT", Vec::new()),
        Dialect::Postgres => (
            "identity",
            vec![
                format!(
                    "ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED BY DEFAULT AS IDENTITY"
                ),
                format!(
                    "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), \
                     (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
                ),
            ],
        ),
    };
    let acts = texts.into_iter().map(Action::Run).collect();
    let what = format!("{what} of {table}.{column}");
    (what, "is missing".to_owned(), acts, true)
}
