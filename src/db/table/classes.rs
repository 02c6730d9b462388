//! `windlass_classes`: the classes that workers perform, and which fields of their arguments are
//! secret.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::micros;
use crate::db::conn::statement::Statement;
use crate::db::table::run_time::IS_STRICT;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable, Text};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A class of a worker, in the order of the columns.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct NewClass(
    pub(crate) String,
    /// Its default queue.
    pub(crate) String,
    /// The names of the secret fields, as a JSON array.
    pub(crate) String,
    /// True if only the program's own code may enqueue it.
    pub(crate) bool,
    /// The quota of enqueues by its name, as JSON.
    pub(crate) Option<String>,
);

/// Stores the classes that a worker performs. Rows that are the same already, and were written
/// recently, are left as they are.
pub(crate) fn see(conn: &mut Conn<'_>, classes: &[NewClass]) -> QueryResult<()> {
    const LATELY: Duration = Duration::from_secs(3600);
    let text = "INSERT INTO windlass_classes (class_name, queue_name, redact, internal, quota, seen_at) \
         SELECT value ->> 0, value ->> 1, value ->> 2, CAST(value ->> 3 AS boolean), value ->> 4, {now} FROM {rows $1} WHERE true ORDER BY 1 \
         ON CONFLICT (class_name) DO UPDATE SET queue_name = excluded.queue_name, redact = excluded.redact, \
           internal = excluded.internal, quota = excluded.quota, seen_at = excluded.seen_at WHERE windlass_classes.queue_name <> excluded.queue_name \
           OR windlass_classes.redact <> excluded.redact OR windlass_classes.internal <> excluded.internal \
           OR coalesce(windlass_classes.quota, '') <> coalesce(excluded.quota, '') OR windlass_classes.seen_at <= {later $2}";
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

/// A class with a rule for enqueues by its name.
#[derive(QueryableByName)]
pub(crate) struct RuledClass {
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
}

/// Returns those of these classes that are refused, or have a quota.
pub(crate) fn with_rules(conn: &mut Conn<'_>, classes: &[&str]) -> QueryResult<Vec<RuledClass>> {
    let text = format!(
        "SELECT n.class_name, c.class_name IS NOT NULL AS is_known, coalesce(c.internal, false) AS internal, c.quota \
         FROM (SELECT value ->> 0 AS class_name FROM {{rows $1}}) AS n \
         LEFT JOIN windlass_classes c ON c.class_name = n.class_name \
         WHERE c.internal OR c.quota IS NOT NULL OR (c.class_name IS NULL AND {IS_STRICT}) ORDER BY n.class_name"
    );
    let names: Vec<[&str; 1]> = classes.iter().map(|name| [*name]).collect();
    let names = serde_json::to_string(&names).unwrap_or_default();
    Statement::new(text).bind(&names).load(conn)
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
