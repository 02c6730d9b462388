//! Statements that Diesel keeps prepared, as text for both databases.

use crate::db::Conn;
use diesel::backend::Backend;
use diesel::deserialize;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::row::NamedRow;
use diesel::sql_types::Array;
use diesel::sql_types::{BigInt, Text, Untyped};

/// A raw statement whose text is always the same, so that it is prepared once.
pub(crate) struct Prepared<Q>(pub(crate) Q);

impl<Q> QueryId for Prepared<Q> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Q> Query for Prepared<Q> {
    type SqlType = Untyped;
}

impl<Q, C> RunQueryDsl<C> for Prepared<Q> {}

impl<DB: Backend, Q: QueryFragment<DB>> QueryFragment<DB> for Prepared<Q> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(pass)
    }

    fn is_safe_to_cache_prepared(&self, _backend: &DB) -> QueryResult<bool> {
        Ok(true)
    }
}

/// A row of which nothing is read.
pub(crate) struct Ignored;

impl<DB: Backend> QueryableByName<DB> for Ignored {
    fn build<'a>(_row: &impl NamedRow<'a, DB>) -> deserialize::Result<Self> {
        Ok(Ignored)
    }
}

impl<Q> Prepared<Q> {
    /// Runs the statement for its effect. Diesel's own `execute` would not keep it prepared.
    pub(crate) fn run<'query, C>(self, conn: &mut C) -> QueryResult<()>
    where
        Self: LoadQuery<'query, C, Ignored>,
    {
        self.load(conn).map(|_: Vec<Ignored>| ())
    }
}

/// The id of a row.
#[derive(QueryableByName)]
pub(crate) struct PlainId {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
}

pub(crate) fn ids(rows: &[PlainId]) -> Vec<i64> {
    rows.iter().map(|row| row.id).collect()
}

/// Returns a list of ids as JSON.
pub(crate) fn json(ids: &[i64]) -> String {
    serde_json::to_string(ids).unwrap_or_default()
}

/// Replaces the words of a text: `{now}`, `{in}` and `{list}`, the last two for the list `$1`.
/// `{list with messages}` has a text for each id.
pub(crate) fn render(conn: &Conn<'_>, text: &str) -> String {
    let (now, within, list, with_messages) = match conn {
        Conn::Postgres(_) => (
            "now()",
            "= ANY ($1)",
            "unnest($1) AS list (value)",
            "unnest($1, $2) AS list (value, message)",
        ),
        Conn::Sqlite(_) => (
            "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
            "IN (SELECT value FROM json_each($1))",
            "json_each($1) AS list",
            "(SELECT value ->> 0 AS value, value ->> 1 AS message FROM json_each($1)) AS list",
        ),
    };
    text.replace("{list with messages}", with_messages)
        .replace("{now}", now)
        .replace("{in}", within)
        .replace("{list}", list)
}

/// Statements about the rows of a list of ids, in one commit: on Postgres one statement.
pub(crate) struct PlainChange(Vec<ListStatement>);

struct ListStatement {
    text: String,
    has_messages: bool,
}

/// The message of each job, where there is one.
const MESSAGE: &str = "it was to fail";

impl PlainChange {
    pub(crate) fn new(conn: &Conn<'_>, texts: &[&str]) -> Self {
        let has_messages = |text: &&str| text.contains("{list with messages}");
        match conn {
            Conn::Postgres(_) => {
                let parts: Vec<String> = texts.iter().map(|text| render(conn, text)).collect();
                PlainChange(vec![ListStatement {
                    text: joined(&parts),
                    has_messages: texts.iter().any(has_messages),
                }])
            }
            Conn::Sqlite(_) => {
                let statements = texts.iter().map(|text| ListStatement {
                    text: render(conn, text),
                    has_messages: has_messages(text),
                });
                PlainChange(statements.collect())
            }
        }
    }

    pub(crate) fn apply(&self, conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<()> {
        match conn {
            Conn::Postgres(conn) => self.0.iter().try_for_each(|one| {
                let query = diesel::sql_query(&one.text).bind::<Array<BigInt>, _>(ids);
                if one.has_messages {
                    let messages = vec![MESSAGE; ids.len()];
                    Prepared(query.bind::<Array<Text>, _>(messages)).run(*conn)
                } else {
                    Prepared(query).run(*conn)
                }
            }),
            Conn::Sqlite(_) => conn.transaction(|conn| {
                let list = json(ids);
                let pairs: Vec<_> = ids.iter().map(|id| (id, MESSAGE)).collect();
                let pairs = serde_json::to_string(&pairs).unwrap_or_default();
                self.0.iter().try_for_each(|statement| {
                    let list = if statement.has_messages {
                        &pairs
                    } else {
                        &list
                    };
                    one(conn, &statement.text, list)
                })
            }),
        }
    }
}

fn one(conn: &mut Conn<'_>, text: &str, list: &str) -> QueryResult<()> {
    match conn {
        Conn::Postgres(conn) => Prepared(diesel::sql_query(text).bind::<Text, _>(list)).run(*conn),
        Conn::Sqlite(conn) => Prepared(diesel::sql_query(text).bind::<Text, _>(list)).run(*conn),
    }
}

/// Joins statements about different tables into one.
fn joined(texts: &[String]) -> String {
    let Some((last, others)) = texts.split_last() else {
        return String::new();
    };
    let parts = others.iter().enumerate();
    let parts: Vec<String> = parts
        .map(|(place, text)| format!("part_{place} AS ({text})"))
        .collect();
    if parts.is_empty() {
        last.clone()
    } else {
        format!("WITH {} {last}", parts.join(", "))
    }
}
