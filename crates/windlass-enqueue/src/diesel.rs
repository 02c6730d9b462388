//! Functions for Diesel, on Postgres and SQLite.
//!
//! ```rust,ignore
//! use windlass_enqueue::{NewJob, diesel::enqueue};
//!
//! let job = NewJob::new(&SendInvoice { order: 7 })?;
//! let id = conn.transaction(|conn| {
//!     diesel::insert_into(orders::table).values(orders::id.eq(7)).execute(conn)?;
//!     enqueue(conn, &job)
//! })?;
//! ```

use crate::{Database, NewJob, Statement, statements_for_all};
use ::diesel::backend::Backend;
use ::diesel::deserialize::{self, FromSql, QueryableByName};
use ::diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use ::diesel::query_dsl::methods::LoadQuery;
use ::diesel::row::NamedRow;
use ::diesel::serialize::ToSql;
use ::diesel::sql_types::{BigInt, Text, Untyped};
use ::diesel::{QueryResult, RunQueryDsl, connection::LoadConnection, result::Error};

/// A backend of Diesel that enqueues: `Pg` or `Sqlite`.
pub trait JobBackend: Backend {
    #[doc(hidden)]
    fn database() -> Database;
}

impl<B: Backend> JobBackend for B
where
    B::QueryBuilder: Default,
{
    /// Postgres numbers its parameters, as `$1`, and SQLite does not.
    fn database() -> Database {
        let mut builder = B::QueryBuilder::default();
        builder.push_bind_param();
        match builder.finish().starts_with('$') {
            true => Database::Postgres,
            false => Database::Sqlite,
        }
    }
}

/// Enqueues a job, and returns its id.
///
/// The job belongs to the transaction of the connection.
///
/// # Errors
/// If the database refuses the job, or the statement fails.
pub fn enqueue<C>(conn: &mut C, job: &NewJob) -> QueryResult<i64>
where
    C: LoadConnection<Backend: JobBackend>,
    Statement: for<'q> LoadQuery<'q, C, Number>,
{
    let ids = enqueue_all(conn, std::slice::from_ref(job))?;
    ids.into_iter().next().ok_or(Error::NotFound)
}

/// Enqueues jobs in few statements, and returns their ids in the same order; see [`statements_for_all`].
///
/// # Errors
/// If the database refuses a job, or a statement fails. Roll back then: earlier jobs may be enqueued.
pub fn enqueue_all<C>(conn: &mut C, jobs: &[NewJob]) -> QueryResult<Vec<i64>>
where
    C: LoadConnection<Backend: JobBackend>,
    Statement: for<'q> LoadQuery<'q, C, Number>,
{
    let mut ids = Vec::with_capacity(jobs.len());
    for mut insert in statements_for_all(jobs, C::Backend::database()) {
        let mut rows: Vec<Number> = Vec::new();
        for statement in std::mem::take(&mut insert.statements) {
            rows = statement.load(conn)?;
        }
        ids.extend(insert.ids(rows.into_iter().map(|row| row.0).collect()));
    }
    Ok(ids)
}

/// The column `id` of a row.
#[doc(hidden)]
#[derive(Debug)]
pub struct Number(pub(crate) i64);

impl<B: Backend> QueryableByName<B> for Number
where
    i64: FromSql<BigInt, B>,
{
    fn build<'a>(row: &impl NamedRow<'a, B>) -> deserialize::Result<Self> {
        NamedRow::get::<BigInt, i64>(row, "id").map(Number)
    }
}

// Unlike `diesel::sql_query`, Diesel keeps it prepared: few distinct texts exist.
impl<B: Backend> QueryFragment<B> for Statement
where
    String: ToSql<Text, B>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, B>) -> QueryResult<()> {
        let mut pieces = self.sql.split(['$', '?']);
        out.push_sql(pieces.next().unwrap_or_default());
        for (piece, value) in pieces.zip(&self.values) {
            out.push_bind_param::<Text, String>(value)?;
            out.push_sql(piece.trim_start_matches(|digit: char| digit.is_ascii_digit()));
        }
        Ok(())
    }
}

impl QueryId for Statement {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Statement {
    type SqlType = Untyped;
}

impl<C> RunQueryDsl<C> for Statement {}
