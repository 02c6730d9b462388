//! Work on tables of Postgres that other sessions use: indexes without blocking writers, and which
//! sessions hold locks.

use crate::clock;
use crate::db::schema::action::Action;
use diesel::prelude::*;
use diesel::result::Error as QueryError;
use diesel::sql_types::Text;
use std::time::Duration;

#[derive(QueryableByName)]
struct NameRow {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Returns whether the error is about a lock, by its message: Diesel keeps no code.
pub(crate) fn is_locked(error: &QueryError) -> bool {
    let message = error.to_string();
    ["could not obtain lock", "lock timeout", "deadlock detected"]
        .iter()
        .any(|text| message.contains(text))
}

/// Builds an index without blocking writers. An incomplete one, left by a process that died or was
/// blocked, is dropped first.
pub(crate) fn concurrently(
    conn: &mut PgConnection,
    act: &Action,
    timeout: Duration,
) -> QueryResult<()> {
    let Action::Index {
        name,
        text,
        is_there,
    } = act
    else {
        return Ok(());
    };
    let deadline = clock::deadline(timeout);
    let mut is_there = *is_there;
    loop {
        match build(conn, name, text, is_there, timeout) {
            Err(error) if is_locked(&error) && clock::instant() < deadline => is_there = true,
            done => return done,
        }
        clock::nap(clock::jittered(Duration::from_millis(100)));
    }
}

/// Tries once, and restores the session's own timeouts.
fn build(
    conn: &mut PgConnection,
    name: &str,
    text: &str,
    is_there: bool,
    timeout: Duration,
) -> QueryResult<()> {
    let of = |name: &str| format!("SELECT current_setting('{name}') AS name");
    let locks: NameRow = diesel::sql_query(of("lock_timeout")).get_result(conn)?;
    let statements: NameRow = diesel::sql_query(of("statement_timeout")).get_result(conn)?;
    limit(conn, &format!("{}ms", timeout.as_millis()), "0")?;
    let dropped = if is_there {
        diesel::sql_query(format!("DROP INDEX CONCURRENTLY IF EXISTS {name}")).execute(conn)
    } else {
        Ok(0)
    };
    let built = dropped.and_then(|_| {
        let text = text.replacen(" INDEX ", " INDEX CONCURRENTLY ", 1);
        diesel::sql_query(text).execute(conn)
    });
    let restored = limit(conn, &locks.name, &statements.name);
    built?;
    restored
}

fn limit(conn: &mut PgConnection, locks: &str, statements: &str) -> QueryResult<()> {
    diesel::sql_query(
        "SELECT set_config('lock_timeout', $1, false), set_config('statement_timeout', $2, false)",
    )
    .bind::<Text, _>(locks)
    .bind::<Text, _>(statements)
    .execute(conn)
    .map(drop)
}

/// Returns the sessions that hold locks on `tables`, or on any table of Windlass.
pub(crate) fn holders(conn: &mut PgConnection, tables: &[&str]) -> String {
    let text = "SELECT DISTINCT 'pid ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') \
         || coalesce(', ' || a.state, '') || ', holds ' || c.relname || ' for ' \
         || coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::integer, 0) || ' s' AS name \
         FROM pg_locks l JOIN pg_class c ON c.oid = l.relation LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
         WHERE l.granted AND l.pid <> pg_backend_pid() AND c.relkind = 'r' AND pg_table_is_visible(c.oid) \
         AND CASE WHEN $1 = '' THEN c.relname LIKE 'solid\\_queue\\_%' OR c.relname LIKE 'windlass\\_%' \
         ELSE c.relname = ANY (string_to_array($1, ',')) END ORDER BY 1 LIMIT 5";
    let found = diesel::sql_query(text)
        .bind::<Text, _>(tables.join(","))
        .load::<NameRow>(conn);
    let names: Vec<String> = found
        .unwrap_or_default()
        .into_iter()
        .map(|one| one.name)
        .collect();
    if names.is_empty() {
        "no session holds a lock on them now: try again".to_owned()
    } else {
        format!("{}; end them, or try again", names.join("; "))
    }
}
