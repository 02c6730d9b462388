//! Changes by operators while the processes run: limits of concurrency keys, paused classes, and settings.

pub mod limits;

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::statement::Statement;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Double, Nullable, Text, Timestamp};
use serde::Serialize;

// --- `windlass_class_pauses`: the classes of which no worker starts a job ---

/// A paused class.
#[derive(Debug, Clone, PartialEq, Serialize, QueryableByName)]
#[non_exhaustive]
pub struct PausedClass {
    /// The name of the class.
    #[diesel(sql_type = Text)]
    pub class_name: String,
    /// The user who paused it, if known.
    #[diesel(sql_type = Nullable<Text>)]
    pub paused_by: Option<String>,
    /// The reason, if one was given.
    #[diesel(sql_type = Nullable<Text>)]
    pub pause_reason: Option<String>,
    /// Seconds since it was paused, by the database's clock.
    #[diesel(sql_type = Double)]
    pub paused_seconds: f64,
}

#[derive(QueryableByName)]
struct PausedName {
    #[diesel(sql_type = Text)]
    class_name: String,
}

fn names(rows: Vec<PausedName>) -> Vec<String> {
    rows.into_iter().map(|row| row.class_name).collect()
}

/// Pauses a class. Returns `false` if it was paused already, and keeps its user and reason.
pub(crate) fn insert_class_pause(
    conn: &mut Conn<'_>,
    class: &str,
    by: Option<&str>,
    reason: Option<&str>,
) -> QueryResult<bool> {
    let text = "INSERT INTO windlass_class_pauses (class_name, paused_by, pause_reason, created_at) \
         VALUES ($1, $2, $3, {now}) ON CONFLICT (class_name) DO NOTHING";
    let changed = Statement::new(text)
        .bind(class)
        .bind(by)
        .bind(reason)
        .uncached()
        .changes(conn)?;
    Ok(changed > 0)
}

/// Deletes the pause of a class. Returns `false` if there was none.
pub(crate) fn delete(conn: &mut Conn<'_>, class: &str) -> QueryResult<bool> {
    let text = "DELETE FROM windlass_class_pauses WHERE class_name = $1";
    let changed = Statement::new(text).bind(class).uncached().changes(conn)?;
    Ok(changed > 0)
}

/// Returns the names of the paused classes, sorted.
pub fn paused(conn: &mut Conn<'_>) -> QueryResult<Vec<String>> {
    let text = "SELECT class_name FROM windlass_class_pauses";
    let mut names = names(Statement::new(text).uncached().load(conn)?);
    names.sort_unstable();
    Ok(names)
}

/// Returns the paused classes with all that is stored about them, by name.
pub fn list_paused_classes(conn: &mut Conn<'_>) -> QueryResult<Vec<PausedClass>> {
    let text = format!(
        "SELECT class_name, paused_by, pause_reason, coalesce({}, 0) AS paused_seconds \
         FROM windlass_class_pauses ORDER BY class_name",
        age(conn, "created_at")
    );
    Statement::new(text).uncached().load(conn)
}

#[derive(QueryableByName)]
struct ClassPausedSince {
    #[diesel(sql_type = Timestamp)]
    since: NaiveDateTime,
}

/// Returns when a class was paused, if it is.
pub(crate) fn since(conn: &mut Conn<'_>, class: &str) -> QueryResult<Option<NaiveDateTime>> {
    let text = "SELECT coalesce({moment created_at}, {now}) AS since FROM windlass_class_pauses WHERE class_name = $1";
    let found: Option<ClassPausedSince> = Statement::new(text)
        .bind(class)
        .uncached()
        .get_result(conn)
        .optional()?;
    Ok(found.map(|row| row.since))
}

// --- `windlass_settings`: settings that programs in all languages share ---

/// A condition: jobs of classes that no worker has stored are refused.
pub(crate) const IS_STRICT: &str =
    "EXISTS (SELECT 1 FROM windlass_settings WHERE name = 'strict_classes' AND value = 'on')";

/// The setting of [`IS_STRICT`].
const STRICT_CLASSES: &str = "strict_classes";

#[derive(QueryableByName)]
struct SettingState {
    #[diesel(sql_type = Bool)]
    is_on: bool,
}

/// Returns whether a setting is on. By default, none is.
pub(crate) fn is_on(conn: &mut Conn<'_>, name: &str) -> QueryResult<bool> {
    let text =
        "SELECT EXISTS (SELECT 1 FROM windlass_settings WHERE name = $1 AND value = 'on') AS is_on";
    let row: SettingState = Statement::new(text)
        .uncached()
        .bind(name)
        .get_result(conn)?;
    Ok(row.is_on)
}

/// Turns a setting on or off. Returns `false` if it was that already.
pub(crate) fn set(conn: &mut Conn<'_>, name: &str, on: bool) -> QueryResult<bool> {
    let was_on = is_on(conn, name)?;
    set_value(conn, name, if on { "on" } else { "off" })?;
    Ok(was_on != on)
}

fn set_value(conn: &mut Conn<'_>, name: &str, value: &str) -> QueryResult<()> {
    let text = "INSERT INTO windlass_settings (name, value) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE windlass_settings.value <> excluded.value";
    Statement::new(text)
        .bind(name)
        .bind(value)
        .uncached()
        .execute(conn)
}

/// The setting of the most bytes of an event's payload, which can only be raised.
pub(crate) const MAX_PAYLOAD: &str = "max_event_payload";

#[derive(QueryableByName)]
struct SettingValue {
    #[diesel(sql_type = Text)]
    value: String,
}

/// Returns the most bytes of an event's payload, if that is set.
pub(crate) fn max_payload(conn: &mut Conn<'_>) -> QueryResult<Option<usize>> {
    let text = "SELECT value FROM windlass_settings WHERE name = $1";
    let row: Option<SettingValue> = Statement::new(text)
        .uncached()
        .bind(MAX_PAYLOAD)
        .get_result(conn)
        .optional()?;
    Ok(row.and_then(|row| row.value.parse().ok()))
}

/// Sets it. Returns `false` if that was set already.
pub(crate) fn set_max_payload(conn: &mut Conn<'_>, bytes: usize) -> QueryResult<bool> {
    let before = max_payload(conn)?;
    set_value(conn, MAX_PAYLOAD, &bytes.to_string())?;
    Ok(before != Some(bytes))
}

/// Returns whether jobs of unknown classes are refused.
pub(crate) fn is_strict(conn: &mut Conn<'_>) -> QueryResult<bool> {
    is_on(conn, STRICT_CLASSES)
}

/// Sets whether jobs of unknown classes are refused. Returns `false` if that was set already.
pub(crate) fn set_strict(conn: &mut Conn<'_>, strict: bool) -> QueryResult<bool> {
    set(conn, STRICT_CLASSES, strict)
}
