//! The columns that Windlass adds to Solid Queue's tables, as Active Record sees them.
//!
//! A column with the name of a method hides it, or is hidden by it: Mission Control calls the method of each column of a
//! job, and answers 500 where that is one of Solid Queue's that needs a Ruby class.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::solid_queue;
use std::collections::{BTreeMap, BTreeSet};

on_each_database!(no_column_has_the_name_of_a_method_of_ruby);

/// Names of columns that Active Record acts on: it locks optimistically, picks a subclass, and sets times.
const MAGIC: [&str; 5] = [
    "lock_version",
    "type",
    "created_on",
    "updated_on",
    "updated_at",
];

/// The methods of Solid Queue's models (1.5, and the batches of 1.7), by table without `solid_queue_`, those of all
/// executions, and, as `record`, those of every model of Active Record (6.1 and 8.1).
fn methods() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let lines = include_str!("solid_queue_methods.txt").lines();
    let models = lines.map(|line| line.split_once(':').unwrap());
    let models = models.map(|(model, names)| (model, names.split_whitespace().collect()));
    models.collect()
}

fn no_column_has_the_name_of_a_method_of_ruby(db: &TestDb) {
    let methods = methods();
    assert!(methods["jobs"].contains("concurrency_limit"));
    let tables = solid_queue::tables();
    let mut ours = 0;
    for column in db.columns() {
        let Some(table) = column.table.strip_prefix("solid_queue_") else {
            continue;
        };
        let (_, theirs) = tables.iter().find(|(name, _)| *name == table).unwrap();
        if column.name == "id" || theirs.iter().any(|one| one.name == column.name) {
            continue;
        }
        ours += 1;
        let mut models = vec![table, "record"];
        models.extend(table.ends_with("_executions").then_some("executions"));
        for model in models {
            let is_method = methods[model].contains(&*column.name);
            assert!(!is_method, "{}.{} is a method", column.table, column.name);
        }
        let is_magic = MAGIC.contains(&&*column.name);
        assert!(
            !is_magic,
            "{}.{} means something to Active Record",
            column.table, column.name
        );
    }
    assert!(ours > 10, "{ours} columns");
}
