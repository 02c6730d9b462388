//! `windlass_settings`: settings that programs in all languages share.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::Bool;

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
    let row: SettingState = Statement::new(text).unkept().bind(name).get_result(conn)?;
    Ok(row.is_on)
}

/// Turns a setting on or off. Returns `false` if it was that already.
pub(crate) fn set(conn: &mut Conn<'_>, name: &str, on: bool) -> QueryResult<bool> {
    let text = "INSERT INTO windlass_settings (name, value) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE windlass_settings.value <> excluded.value";
    let was_on = is_on(conn, name)?;
    let value = if on { "on" } else { "off" };
    Statement::new(text)
        .bind(name)
        .bind(value)
        .unkept()
        .execute(conn)?;
    Ok(was_on != on)
}

/// Returns whether jobs of unknown classes are refused.
pub(crate) fn is_strict(conn: &mut Conn<'_>) -> QueryResult<bool> {
    is_on(conn, STRICT_CLASSES)
}

/// Sets whether jobs of unknown classes are refused. Returns `false` if that was set already.
pub(crate) fn set_strict(conn: &mut Conn<'_>, strict: bool) -> QueryResult<bool> {
    set(conn, STRICT_CLASSES, strict)
}
