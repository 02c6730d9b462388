//! `windlass_settings`: settings that programs in all languages share.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::Bool;

/// A condition: jobs of classes that no worker has stored are refused.
pub(crate) const IS_STRICT: &str =
    "EXISTS (SELECT 1 FROM windlass_settings WHERE name = 'strict_classes' AND value = 'on')";

#[derive(QueryableByName)]
struct Strictness {
    #[diesel(sql_type = Bool)]
    is_strict: bool,
}

/// Returns whether jobs of unknown classes are refused.
pub(crate) fn is_strict(conn: &mut Conn<'_>) -> QueryResult<bool> {
    let text = format!("SELECT {IS_STRICT} AS is_strict");
    let row: Strictness = Statement::new(text).unkept().get_result(conn)?;
    Ok(row.is_strict)
}

/// Sets whether jobs of unknown classes are refused. Returns `false` if that was set already.
pub(crate) fn set_strict(conn: &mut Conn<'_>, strict: bool) -> QueryResult<bool> {
    let text = "INSERT INTO windlass_settings (name, value) VALUES ('strict_classes', $1) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE windlass_settings.value <> excluded.value";
    let was_strict = is_strict(conn)?;
    let value = if strict { "on" } else { "off" };
    Statement::new(text).bind(value).unkept().execute(conn)?;
    Ok(was_strict != strict)
}
