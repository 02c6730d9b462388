//! `windlass_classes`: the classes that workers perform, and which fields of their arguments are
//! secret.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::micros;
use crate::db::conn::statement::Statement;
use crate::db::model::rate::NewRate;
use crate::db::table::run_time::IS_STRICT;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A class of a worker. Each field but the name is a column of [`STORED`].
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct NewClass {
    pub(crate) class_name: String,
    pub(crate) queue_name: String,
    /// The names of the secret fields, as a JSON array.
    pub(crate) redact: String,
    /// True if only the program's own code may enqueue it.
    pub(crate) internal: bool,
    /// The quota of enqueues by its name, as JSON.
    pub(crate) quota: Option<String>,
    pub(crate) priority: i32,
    /// Only if its policy sets them.
    pub(crate) max_attempts: Option<i32>,
    pub(crate) max_crashes: Option<i32>,
    /// Set if it runs at most once.
    pub(crate) at_most_once: Option<bool>,
    /// The most bytes of its arguments.
    pub(crate) max_arguments: Option<i64>,
    /// All else that its policy says, as the column of a job has it.
    pub(crate) policy: Option<String>,
    /// The rates of its policy, as the column of a job has them.
    pub(crate) rates: Option<String>,
}

/// The columns that a worker stores of a class, and their types.
const STORED: [(&str, &str); 11] = [
    ("queue_name", "text"),
    ("redact", "text"),
    ("internal", "boolean"),
    ("quota", "text"),
    ("priority", "integer"),
    ("max_attempts", "integer"),
    ("max_crashes", "integer"),
    ("at_most_once", "boolean"),
    ("max_arguments", "bigint"),
    ("policy", "text"),
    ("rates", "text"),
];

/// Stores the classes that a worker performs. Rows that are the same already, and were written
/// recently, are left as they are.
pub(crate) fn see(conn: &mut Conn<'_>, classes: &[NewClass]) -> QueryResult<()> {
    const LATELY: Duration = Duration::from_secs(3600);
    let each = |part: fn(&str, &str) -> String, between: &str| {
        let parts = STORED.map(|(column, kind)| part(column, kind));
        parts.join(between)
    };
    let text = format!(
        "INSERT INTO windlass_classes (class_name, {}, seen_at) \
         SELECT value ->> 'class_name', {}, {{now}} FROM {{rows $1}} WHERE true ORDER BY 1 \
         ON CONFLICT (class_name) DO UPDATE SET {}, seen_at = excluded.seen_at \
         WHERE {} OR windlass_classes.seen_at <= {{later $2}}",
        each(|column, _| column.to_owned(), ", "),
        each(
            |column, kind| format!("CAST(value ->> '{column}' AS {kind})"),
            ", "
        ),
        each(|column, _| format!("{column} = excluded.{column}"), ", "),
        each(
            |column, _| format!("windlass_classes.{column} IS DISTINCT FROM excluded.{column}"),
            " OR "
        ),
    );
    let rows = serde_json::to_string(classes).unwrap_or_default();
    Statement::new(text)
        .bind(&rows)
        .bind(-micros(LATELY))
        .execute(conn)
}

#[derive(QueryableByName)]
struct RedactedFields {
    #[diesel(sql_type = Text)]
    redact: String,
}

/// Returns the names of the secret fields of a class. `None` if no worker has stored any, or if
/// they cannot be read.
pub(crate) fn redact(conn: &mut Conn<'_>, class_name: &str) -> QueryResult<Option<Vec<String>>> {
    let text = "SELECT redact FROM windlass_classes WHERE class_name = $1";
    let row: Option<RedactedFields> = Statement::new(text)
        .bind(class_name)
        .get_result(conn)
        .optional()?;
    Ok(row.and_then(|row| serde_json::from_str(&row.redact).ok()))
}

#[derive(QueryableByName)]
struct FieldsOfClass {
    #[diesel(sql_type = Text)]
    class_name: String,
    #[diesel(sql_type = Text)]
    redact: String,
}

/// Returns the names of the secret fields of these classes; a class without any that can be read is
/// not among them.
pub(crate) fn redact_all(
    conn: &mut Conn<'_>,
    classes: &[&str],
) -> QueryResult<BTreeMap<String, Vec<String>>> {
    let text = "SELECT class_name, redact FROM windlass_classes WHERE class_name IN (SELECT value ->> 0 FROM {rows $1})";
    let names: Vec<[&str; 1]> = classes.iter().map(|name| [*name]).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    let rows: Vec<FieldsOfClass> = Statement::new(text).uncached().bind(&names).load(conn)?;
    let fields = rows.into_iter().filter_map(|row| {
        let fields = serde_json::from_str(&row.redact).ok()?;
        Some((row.class_name, fields))
    });
    Ok(fields.collect())
}

/// A class as an enqueue by its name sees it: the rules for it, and what the job has that leaves a value out.
#[derive(Debug, QueryableByName)]
pub(crate) struct NamedClass {
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    /// True if a worker has stored it. If not, unknown classes are refused.
    #[diesel(sql_type = Bool)]
    pub(crate) is_known: bool,
    /// True if a worker has stored it as internal.
    #[diesel(sql_type = Bool)]
    pub(crate) internal: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) quota: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) queue_name: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) priority: Option<i32>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_attempts: Option<i32>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_crashes: Option<i32>,
    #[diesel(sql_type = Bool)]
    pub(crate) at_most_once: bool,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) max_arguments: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) rates: Option<String>,
}

impl NamedClass {
    /// Returns the rates of its policy. Those that cannot be read count as none.
    pub(crate) fn rates(&self) -> Vec<NewRate> {
        let rates = self.rates.as_deref();
        let rates = rates.and_then(|rates| serde_json::from_str(rates).ok());
        rates.unwrap_or_default()
    }
}

/// Returns those of these classes that a worker has stored and, if unknown classes are refused, the others.
pub(crate) fn named(conn: &mut Conn<'_>, classes: &[&str]) -> QueryResult<Vec<NamedClass>> {
    let text = format!(
        "SELECT n.class_name, c.class_name IS NOT NULL AS is_known, coalesce(c.internal, false) AS internal, c.quota, \
           c.queue_name, c.priority, c.max_attempts, c.max_crashes, coalesce(c.at_most_once, false) AS at_most_once, c.max_arguments, c.policy, c.rates \
         FROM (SELECT value ->> 0 AS class_name FROM {{rows $1}}) AS n \
         LEFT JOIN windlass_classes c ON c.class_name = n.class_name \
         WHERE c.class_name IS NOT NULL OR {IS_STRICT} ORDER BY n.class_name"
    );
    let names: Vec<[&str; 1]> = classes.iter().map(|name| [*name]).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    Statement::new(text).bind(&names).load(conn)
}

#[derive(QueryableByName)]
struct QueueOfClass {
    #[diesel(sql_type = Text)]
    class_name: String,
    #[diesel(sql_type = Text)]
    queue_name: String,
}

/// Returns the queues of these classes, as far as a worker has stored them.
#[doc(hidden)]
pub fn queues(conn: &mut Conn<'_>, classes: &[&str]) -> QueryResult<BTreeMap<String, String>> {
    let text = "SELECT class_name, queue_name FROM windlass_classes WHERE class_name IN (SELECT value ->> 0 FROM {rows $1})";
    let names: Vec<[&str; 1]> = classes.iter().map(|name| [*name]).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    let rows: Vec<QueueOfClass> = Statement::new(text).uncached().bind(&names).load(conn)?;
    Ok(rows
        .into_iter()
        .map(|row| (row.class_name, row.queue_name))
        .collect())
}

#[derive(QueryableByName)]
struct HasInternal {
    #[diesel(sql_type = Bool)]
    is_it: bool,
}

/// Returns whether a job is of a class that a worker has stored as internal.
pub(crate) fn has_internal(conn: &mut Conn<'_>, job: i64) -> QueryResult<bool> {
    let text = "SELECT EXISTS (SELECT 1 FROM solid_queue_jobs j JOIN windlass_classes c ON c.class_name = j.class_name \
         WHERE j.id = $1 AND c.internal) AS is_it";
    let row: HasInternal = Statement::new(text).bind(job).uncached().get_result(conn)?;
    Ok(row.is_it)
}

/// Deletes the classes that no worker has stored for that long, and returns how many.
pub(crate) fn forget(conn: &mut Conn<'_>, age: Duration) -> QueryResult<usize> {
    let text = "DELETE FROM windlass_classes WHERE seen_at <= {later $1}";
    Statement::new(text)
        .bind(-micros(age))
        .uncached()
        .changes(conn)
}
