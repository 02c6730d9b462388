//! What a database lacks, and the statements that complete it.

use crate::db::conn::dialect::Dialect;
use crate::db::schema::catalog::{Catalog, CatalogColumn};
use crate::db::schema::reference::{self, ItemKind, SchemaChange, SchemaItem};
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
pub(crate) struct PlanStep {
    /// As in `the {what} {fault}`. `None` for a part of a migration.
    pub(crate) what: Option<String>,
    pub(crate) fault: String,
    /// The version of its migration.
    pub(crate) version: String,
    /// The existing table that is changed.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) table: Option<String>,
    /// Other tables that the statements lock.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) locks: Vec<String>,
    /// Empty if a person has to do it.
    pub(crate) acts: Vec<Action>,
    /// Whether programs cannot work without it.
    pub(crate) is_vital: bool,
}

impl PlanStep {
    pub(crate) fn says(&self) -> Option<String> {
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
    /// Whether no table exists yet.
    pub(crate) is_fresh: bool,
}

impl SchemaPlan {
    pub(crate) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.steps.is_empty()
    }

    /// Compares what exists with what the migrations lead to.
    pub(crate) fn new(
        dialect: Dialect,
        files: &[(String, &'static str)],
        applied: &BTreeSet<String>,
        catalog: &Catalog,
    ) -> Self {
        let known = |version: &String| files.iter().any(|(one, _)| one == version);
        let is_newer = !applied.iter().all(known);
        let missing = files
            .iter()
            .filter(|(version, _)| !applied.contains(version));
        let missing: Vec<_> = missing.cloned().collect();
        let (mut steps, is_fresh) = (Vec::new(), catalog.is_empty());
        // A newer program may have replaced items of this one. In an empty database, the migrations
        // themselves run.
        if !is_fresh && (!is_newer || !missing.is_empty()) {
            let items = reference::items(files.iter().cloned());
            for item in &items {
                steps.extend(step(dialect, item, &items, catalog));
            }
        }
        // What programs need most is named first. An index comes after its column.
        steps.sort_by_key(|step| !step.is_vital);
        for (version, text) in missing.iter().filter(|_| !is_fresh) {
            steps.extend(remainder(version, text, catalog));
        }
        SchemaPlan {
            versions: missing.into_iter().map(|(version, _)| version).collect(),
            steps,
            is_fresh,
        }
    }
}

/// Returns the statements of a missing migration that no item covers.
fn remainder(version: &str, text: &str, catalog: &Catalog) -> Vec<PlanStep> {
    let statements = reference::statements(text).into_iter();
    let kept = statements.filter_map(|statement| {
        let (table, is_wanted) = match reference::change(&statement, version) {
            SchemaChange::Make(made) => {
                // It is replaced, as an earlier migration may have made it.
                let is_replaced = statement.starts_with("CREATE OR REPLACE ");
                (
                    None,
                    is_replaced
                        && made
                            .iter()
                            .all(|one| catalog.other("function", &one.name).is_some()),
                )
            }
            SchemaChange::Drop(ItemKind::Index, name) => {
                let found = catalog.other("index", &name);
                (found.map(|index| index.of.clone()), found.is_some())
            }
            SchemaChange::Drop(ItemKind::Table, name) => {
                (Some(name.clone()), catalog.has_table(&name))
            }
            SchemaChange::DropColumn { table, column } => {
                let is_there = catalog.column(&table, &column).is_some();
                (Some(table), is_there)
            }
            SchemaChange::DropKey { table, column } => {
                let key = format!("{table}_{column}_fkey");
                (Some(table), catalog.other("key", &key).is_some())
            }
            SchemaChange::Drop(..) | SchemaChange::Other => (None, true),
        };
        is_wanted.then(|| PlanStep {
            what: None,
            fault: String::new(),
            version: version.to_owned(),
            // A foreign key is dropped with a trigger of the jobs.
            locks: if statement.contains(" DROP CONSTRAINT ") {
                vec!["solid_queue_jobs".to_owned()]
            } else {
                Vec::new()
            },
            table,
            acts: vec![Action::Run(statement)],
            is_vital: false,
        })
    });
    kept.collect()
}

/// Returns what has to be done for an item. `None` if it exists.
fn step(
    dialect: Dialect,
    item: &SchemaItem,
    items: &[SchemaItem],
    catalog: &Catalog,
) -> Option<PlanStep> {
    let SchemaItem {
        table, name, text, ..
    } = item;
    let has_table = catalog.has_table(table);
    let lacking = |what: String, act: Action| PlanStep {
        what: Some(what),
        fault: "is missing".to_owned(),
        version: item.version.clone(),
        table: has_table.then(|| table.clone()),
        locks: Vec::new(),
        acts: vec![act],
        is_vital: item.kind != ItemKind::Option
            && (item.kind != ItemKind::Index || item.is_unique()),
    };
    match item.kind {
        ItemKind::Table if has_table => None,
        ItemKind::Table => Some(lacking(format!("table {table}"), create(item, items))),
        ItemKind::Column if !has_table => None,
        ItemKind::Column => match catalog.column(table, name) {
            Some(found) => differing(dialect, item, found),
            None => {
                let text = format!("ALTER TABLE {table} ADD COLUMN {name} {text}");
                Some(lacking(format!("column {table}.{name}"), Action::Run(text)))
            }
        },
        ItemKind::Index => index(item, catalog, lacking),
        ItemKind::Function => catalog
            .other("function", name)
            .is_none()
            .then(|| lacking(format!("function {name}"), Action::Run(text.clone()))),
        ItemKind::Trigger => catalog.other("trigger", name).is_none().then(|| {
            lacking(
                format!("trigger {name} of {table}"),
                Action::Run(text.clone()),
            )
        }),
        ItemKind::Option => {
            let mut others = catalog.others.iter();
            let is_it =
                others.any(|one| one.kind == "option" && one.of == *table && one.name == *name);
            (!is_it).then(|| {
                let set = format!("ALTER TABLE {table} SET ({name} = {text})");
                lacking(format!("{name} of {table}"), Action::Run(set))
            })
        }
    }
}

fn index(
    item: &SchemaItem,
    catalog: &Catalog,
    lacking: impl Fn(String, Action) -> PlanStep,
) -> Option<PlanStep> {
    let found = catalog.other("index", &item.name);
    if found.is_some_and(|found| found.valid) {
        return None;
    }
    let act = Action::Index {
        name: item.name.clone(),
        text: item.text.clone(),
        is_there: found.is_some(),
    };
    let mut step = lacking(format!("index {} of {}", item.name, item.table), act);
    if found.is_some() {
        step.fault = "is not valid".to_owned();
    }
    Some(step)
}

fn create(item: &SchemaItem, items: &[SchemaItem]) -> Action {
    let columns = items
        .iter()
        .filter(|one| one.kind == ItemKind::Column && one.table == item.table)
        .map(|column| format!("{} {}", column.name, column.text));
    let columns: Vec<String> = columns.collect();
    let (table, constraints) = (&item.table, &item.text);
    Action::Run(format!(
        "CREATE TABLE {table} ({}{constraints})",
        columns.join(", ")
    ))
}

/// Returns the name of the types that are compatible with this one.
fn family(dialect: Dialect, kind: &str) -> &str {
    let kind = kind.split('(').next().unwrap_or(kind).trim();
    match (dialect, kind) {
        (_, "varchar" | "character varying" | "text" | "char" | "character") => "text",
        (_, "timestamp" | "timestamp without time zone" | "datetime") => "timestamp",
        (Dialect::Sqlite, "integer" | "bigint" | "boolean" | "int") => "integer",
        (_, kind) => kind,
    }
}

/// Returns the change to an existing column, if it differs.
fn differing(dialect: Dialect, item: &SchemaItem, found: &CatalogColumn) -> Option<PlanStep> {
    let place = format!("{}.{}", item.table, item.name);
    if family(dialect, item.type_name()) != family(dialect, &found.kind) {
        let fault = format!("is {}, not {}", found.kind, item.type_name());
        return Some(changing(item, format!("column {place}"), fault, Vec::new()));
    }
    if item.is_generated() {
        return (!found.generated).then(|| generating(dialect, item, &place));
    }
    let standard = found
        .standard
        .as_deref()
        .map(|text| text.split("::").next().unwrap_or(text));
    let has_default = item
        .default()
        .is_none_or(|default| standard == Some(default));
    let is_loose = item.is_not_null() && found.nullable && item.default().is_some();
    let is_strict = !item.is_not_null() && !found.nullable;
    let (what, fault) = match item.default() {
        Some(default) if !has_default => {
            let fault = standard.map_or("is missing".to_owned(), |is| {
                format!("is {is}, not {default}")
            });
            ("default of", fault)
        }
        _ if is_loose => ("column", "allows NULL".to_owned()),
        _ if is_strict => ("column", "does not allow NULL".to_owned()),
        _ => return None,
    };
    let acts = define(dialect, item, has_default, is_loose, is_strict);
    Some(PlanStep {
        is_vital: is_strict,
        ..changing(item, format!("{what} {place}"), fault, acts)
    })
}

/// A vital change of a column.
fn changing(item: &SchemaItem, what: String, fault: String, acts: Vec<Action>) -> PlanStep {
    PlanStep {
        what: Some(what),
        fault,
        version: item.version.clone(),
        table: Some(item.table.clone()),
        locks: Vec::new(),
        acts,
        is_vital: true,
    }
}

/// Returns the step for a missing id generator: the database has to generate ids, and never the
/// same twice.
fn generating(dialect: Dialect, item: &SchemaItem, place: &str) -> PlanStep {
    let (what, acts) = match dialect {
        Dialect::Postgres => ("identity", identity(&item.table, &item.name)),
        Dialect::Sqlite => ("AUTOINCREMENT", Vec::new()),
    };
    changing(
        item,
        format!("{what} of {place}"),
        "is missing".to_owned(),
        acts,
    )
}

/// Returns the statements that make ids continue after the largest one.
fn identity(table: &str, column: &str) -> Vec<Action> {
    vec![
        Action::Run(format!(
            "ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED BY DEFAULT AS IDENTITY"
        )),
        Action::Run(format!(
            "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), \
             (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
        )),
    ]
}

fn define(
    dialect: Dialect,
    item: &SchemaItem,
    has_default: bool,
    is_loose: bool,
    is_strict: bool,
) -> Vec<Action> {
    let SchemaItem {
        table, name, text, ..
    } = item;
    let default = item.default().unwrap_or("NULL");
    let alter =
        |what: String| Action::Run(format!("ALTER TABLE {table} ALTER COLUMN {name} {what}"));
    let fill = Action::Run(format!(
        "UPDATE {table} SET {name} = {default} WHERE {name} IS NULL"
    ));
    let fill = is_loose.then_some(fill);
    match dialect {
        Dialect::Sqlite => {
            let define = Action::Define {
                table: table.clone(),
                column: name.clone(),
                definition: text.clone(),
            };
            fill.into_iter().chain([define]).collect()
        }
        Dialect::Postgres => {
            let set = (!has_default).then(|| alter(format!("SET DEFAULT {default}")));
            let strict = is_loose.then(|| alter("SET NOT NULL".to_owned()));
            let loose = is_strict.then(|| alter("DROP NOT NULL".to_owned()));
            [set, fill, strict, loose].into_iter().flatten().collect()
        }
    }
}
