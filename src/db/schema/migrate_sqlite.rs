//! Completes a SQLite file in one transaction, whose write lock keeps migrations apart.

use crate::db::conn::connection::Conn;
use crate::db::schema::compare::{Migrated, create, failed, migration_plan, refuse_by_hand};
use crate::db::schema::items::{self, Catalog, CatalogColumn};
use crate::db::schema::plan::Action;
use crate::error::Result;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as QueryError};
use diesel::sql_types::{BigInt, Text};

pub(crate) fn complete(conn: &mut Conn<'_>) -> Result<Migrated> {
    let done = conn.transaction(|conn| {
        // Another process may have completed it meanwhile.
        let plan = migration_plan(conn)?;
        refuse_by_hand(&plan)?;
        if plan.is_fresh {
            create(conn)?;
            return Ok(Migrated::of(plan));
        }
        for step in &plan.steps {
            for act in &step.acts {
                run(conn, act).map_err(|error| {
                    let what = step.what.as_deref().unwrap_or("a statement");
                    failed(step, format!("{what}: {error}"))
                })?;
            }
        }
        Ok(Migrated::of(plan))
    });
    if done.is_err() {
        // A rollback does not reset it.
        let _ = run(
            conn,
            &Action::Run("PRAGMA writable_schema = OFF".to_owned()),
        );
    }
    done
}

fn run(conn: &mut Conn<'_>, act: &Action) -> QueryResult<()> {
    match (conn, act) {
        (Conn::Sqlite(conn), Action::Run(text) | Action::Index { text, .. }) => {
            diesel::sql_query(text).execute(*conn).map(drop)
        }
        (
            Conn::Sqlite(conn),
            Action::Define {
                table,
                column,
                definition,
            },
        ) => define(conn, table, column, definition),
        #[cfg(feature = "postgres")]
        (Conn::Postgres(_), _) => Ok(()),
    }
}

#[derive(QueryableByName)]
struct TableText {
    #[diesel(sql_type = Text)]
    sql: String,
    #[diesel(sql_type = BigInt)]
    version: i64,
}

/// Changes the default of a column, or lets it be NULL.
///
/// SQLite documents this way for changes that leave the rows as they are
/// (<https://sqlite.org/lang_altertable.html>, section 7): the text of the table is edited and the
/// schema's version incremented, in one transaction.
fn define(
    conn: &mut SqliteConnection,
    table: &str,
    column: &str,
    definition: &str,
) -> QueryResult<()> {
    let before = columns(conn, table)?;
    let TableText { sql, version } = diesel::sql_query(
        "SELECT sql, (SELECT schema_version FROM pragma_schema_version) AS version \
         FROM sqlite_schema WHERE type = 'table' AND name = $1",
    )
    .bind::<Text, _>(table)
    .get_result(conn)?;
    let Some(edited) = redefined(&sql, column, definition) else {
        return Err(refused(format!(
            "its definition of {table} cannot be read: {sql}"
        )));
    };
    diesel::sql_query("PRAGMA writable_schema = ON").execute(conn)?;
    diesel::sql_query("UPDATE sqlite_schema SET sql = $1 WHERE type = 'table' AND name = $2")
        .bind::<Text, _>(edited)
        .bind::<Text, _>(table)
        .execute(conn)?;
    diesel::sql_query(format!("PRAGMA schema_version = {}", version + 1)).execute(conn)?;
    // Reads the schema again, which fails if the new text is invalid.
    diesel::sql_query("PRAGMA writable_schema = RESET").execute(conn)?;
    let after = columns(conn, table)?;
    let others = |columns: &[CatalogColumn]| -> Vec<CatalogColumn> {
        let others = columns.iter().filter(|one| one.name != column);
        others.cloned().collect()
    };
    if before.len() != after.len() || others(&before) != others(&after) {
        return Err(refused(format!(
            "the edited definition of {table} differs in other columns"
        )));
    }
    Ok(())
}

fn refused(message: String) -> QueryError {
    QueryError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message))
}

fn columns(conn: &mut SqliteConnection, table: &str) -> QueryResult<Vec<CatalogColumn>> {
    let all = Catalog::read(&mut Conn::Sqlite(conn))?.columns;
    Ok(all.into_iter().filter(|one| one.of == table).collect())
}

/// Returns the text of a table in which `column` has another definition. `None` if the text does
/// not define the column.
fn redefined(sql: &str, column: &str, definition: &str) -> Option<String> {
    let (start, end) = (sql.find('(')? + 1, sql.rfind(')')?);
    let mut is_found = false;
    let parts = items::parts(sql.get(start..end)?).into_iter().map(|part| {
        let first = part.split_whitespace().next().unwrap_or_default();
        if first.trim_matches(['"', '`', '[', ']']) != column {
            return part.to_owned();
        }
        is_found = true;
        let space: String = part.chars().take_while(|one| one.is_whitespace()).collect();
        format!("{space}{first} {definition}")
    });
    let parts: Vec<String> = parts.collect();
    let edited = format!("{}{}{}", &sql[..start], parts.join(","), &sql[end..]);
    is_found.then_some(edited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_column_is_defined_anew() {
        let sql = "CREATE TABLE \"t\" (\"id\" integer PRIMARY KEY, \"a\" varchar(5, 2) DEFAULT 'a, b',\n  \"done\" boolean DEFAULT false NOT NULL, last text)";
        let edited = redefined(sql, "done", "boolean NOT NULL DEFAULT 0").unwrap();
        let expected = sql.replace(
            "boolean DEFAULT false NOT NULL",
            "boolean NOT NULL DEFAULT 0",
        );
        assert_eq!(edited, expected);
        assert_eq!(redefined(sql, "other", "text"), None);
    }
}
