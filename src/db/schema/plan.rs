//! What a database lacks, and the statements that complete it.

use crate::db::conn::dialect::Dialect;
use crate::db::schema::action::{Action, PlanStep};
use crate::db::schema::catalog::Catalog;
use crate::db::schema::column::differing;
use crate::db::schema::postgres::functions::close_functions;
use crate::db::schema::reference::{self, ItemKind, SchemaChange, SchemaItem};
use std::collections::BTreeSet;

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
pub(crate) fn step(
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
        ItemKind::View | ItemKind::Function | ItemKind::Trigger => {
            let step = whole(item, catalog)?;
            let mut lacking = lacking(step, Action::Run(text.clone()));
            if item.kind == ItemKind::Function {
                lacking.acts.push(Action::Run(close_functions()));
            }
            Some(lacking)
        }
        ItemKind::Option if has_option(catalog, item) => None,
        ItemKind::Option => {
            let set = Action::Run(format!("ALTER TABLE {table} SET ({name} = {text})"));
            Some(lacking(format!("{name} of {table}"), set))
        }
    }
}

/// Returns what an item is, whose text is its whole statement. `None` if it exists.
fn whole(item: &SchemaItem, catalog: &Catalog) -> Option<String> {
    let SchemaItem { table, name, .. } = item;
    let (kind, what) = match item.kind {
        ItemKind::View => ("view", format!("view {name}")),
        ItemKind::Function => ("function", format!("function {name}")),
        _ => ("trigger", format!("trigger {name} of {table}")),
    };
    catalog.other(kind, name).is_none().then_some(what)
}

fn has_option(catalog: &Catalog, item: &SchemaItem) -> bool {
    let mut others = catalog.others.iter();
    others.any(|one| one.kind == "option" && one.of == item.table && one.name == item.name)
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
