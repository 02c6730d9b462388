//! One statement for both databases: a text with the placeholders of
//! [`Dialect`](super::dialect::Dialect), and its parameters.

use crate::db::conn::connection::Conn;
#[cfg(feature = "postgres")]
use crate::db::conn::connection::alone;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::places::{ParamPlace, placed};
#[cfg(feature = "postgres")]
use crate::db::conn::pooling::recognise::advised;
#[cfg(feature = "postgres")]
use diesel::pg::Pg as First;
#[cfg(not(feature = "sqlite"))]
use diesel::pg::Pg as Last;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Bool, HasSqlType, Integer, Nullable, Text, Untyped};
#[cfg(feature = "sqlite")]
use diesel::sqlite::Sqlite as Last;
#[cfg(not(feature = "postgres"))]
use diesel::sqlite::Sqlite as First;
use diesel::{QueryResult, QueryableByName, RunQueryDsl};
use serde::Serialize;
use std::borrow::Cow;

// The databases of this build, one twice if it has only one.

/// A statement with its parameters, for either database.
///
/// The text names its parameters `$1`, `$2`, ..; each may appear more than once. The connection
/// caches it, prepared, by its text, so there must be few different texts: values belong in
/// parameters.
#[derive(Debug)]
pub struct Statement<'v> {
    text: Cow<'v, str>,
    params: Vec<Param<'v>>,
    is_cached: bool,
    needs_settings: bool,
}

/// A row that can be read by column name from each database of this build.
pub trait FromRow: QueryableByName<First> + QueryableByName<Last> + 'static {}

impl<R> FromRow for R where R: QueryableByName<First> + QueryableByName<Last> + 'static {}

impl<'v> Statement<'v> {
    #[doc(hidden)]
    pub fn new(text: impl Into<Cow<'v, str>>) -> Self {
        Statement {
            text: text.into(),
            params: Vec::new(),
            is_cached: true,
            needs_settings: true,
        }
    }

    /// Binds the next parameter.
    pub fn bind(mut self, value: impl Into<Param<'v>>) -> Self {
        self.params.push(value.into());
        self
    }

    /// Binds the next parameters.
    pub fn bind_all(mut self, values: impl IntoIterator<Item = Param<'v>>) -> Self {
        self.params.extend(values);
        self
    }

    /// Does not cache the prepared statement; for statements that run rarely.
    pub fn uncached(mut self) -> Self {
        self.is_cached = false;
        self
    }

    /// Does without the settings of the session: the statement waits for no lock, takes little time and needs no
    /// particular plan. Where a pooler gives out sessions by transaction, it needs no BEGIN and COMMIT then.
    pub(crate) fn plain(mut self) -> Self {
        self.needs_settings = false;
        self
    }

    /// Runs the statement and returns its rows.
    pub fn load<R: FromRow>(self, conn: &mut Conn<'_>) -> QueryResult<Vec<R>> {
        let statement = self.written(conn);
        match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => statement.run_on(conn, |statement, conn| statement.load(conn)),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => statement.load(*conn),
        }
    }

    /// Runs the statement and returns its first row.
    ///
    /// # Errors
    /// Returns `NotFound` if it has none.
    pub fn get_result<R: FromRow>(self, conn: &mut Conn<'_>) -> QueryResult<R> {
        let rows = self.load(conn)?;
        rows.into_iter()
            .next()
            .ok_or(diesel::result::Error::NotFound)
    }

    /// Runs the statement and returns nothing.
    pub(crate) fn execute(self, conn: &mut Conn<'_>) -> QueryResult<()> {
        self.changes(conn).map(drop)
    }

    /// Runs the statement and returns how many rows it changed.
    pub(crate) fn changes(self, conn: &mut Conn<'_>) -> QueryResult<usize> {
        let statement = self.written(conn);
        match conn {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => {
                statement.run_on(conn, |statement, conn| statement.execute(conn))
            }
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => statement.execute(*conn),
        }
    }

    fn written(self, conn: &Conn<'_>) -> Rendered<'v> {
        let text = match self.text.contains('{') {
            true => Cow::Owned(conn.render(&self.text)),
            false => self.text,
        };
        let (text, places) = placed(text, conn.dialect());
        Rendered {
            text,
            places,
            params: self.params,
            is_cached: self.is_cached,
            needs_settings: self.needs_settings,
        }
    }
}

/// A statement in the dialect of its connection.
struct Rendered<'v> {
    text: Cow<'v, str>,
    /// The places in the text at which parameters appear first.
    places: Vec<ParamPlace>,
    params: Vec<Param<'v>>,
    is_cached: bool,
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    needs_settings: bool,
}

impl QueryId for Rendered<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Rendered<'_> {
    type SqlType = Untyped;
}

impl<C> RunQueryDsl<C> for Rendered<'_> {}

impl Rendered<'_> {
    #[cfg(feature = "postgres")]
    fn run_on<T>(
        self,
        conn: &mut diesel::PgConnection,
        run: impl FnOnce(Self, &mut diesel::PgConnection) -> QueryResult<T>,
    ) -> QueryResult<T> {
        let done = if self.needs_settings {
            alone(conn, |conn| run(self, conn))
        } else {
            run(self, conn)
        };
        done.map_err(advised)
    }

    /// Passes the text to Diesel piece by piece: `push` for each parameter where it appears first.
    fn walk<'b, DB: diesel::backend::Backend>(
        &'b self,
        mut pass: AstPass<'_, 'b, DB>,
        push: impl Fn(&'b Param<'_>, &mut AstPass<'_, 'b, DB>) -> QueryResult<()>,
    ) -> QueryResult<()> {
        if !self.is_cached {
            pass.unsafe_to_cache_prepared();
        }
        let mut after = 0;
        for place in &self.places {
            pass.push_sql(&self.text[after..place.start]);
            let param = self.params.get(place.number.wrapping_sub(1));
            push(param.ok_or_else(|| missing(place.number))?, &mut pass)?;
            after = place.end;
        }
        pass.push_sql(&self.text[after..]);
        Ok(())
    }
}

fn missing(number: usize) -> diesel::result::Error {
    diesel::result::Error::QueryBuilderError(format!("${number} has no value").into())
}

/// Pushes a parameter of a type that both databases have.
fn push_scalar<'b, DB>(param: &'b Param<'_>, pass: &mut AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    DB: diesel::backend::Backend
        + HasSqlType<BigInt>
        + HasSqlType<Integer>
        + HasSqlType<Bool>
        + HasSqlType<Binary>
        + HasSqlType<Text>,
    i64: diesel::serialize::ToSql<BigInt, DB>,
    i32: diesel::serialize::ToSql<Integer, DB>,
    bool: diesel::serialize::ToSql<Bool, DB>,
    [u8]: diesel::serialize::ToSql<Binary, DB>,
    Vec<u8>: diesel::serialize::ToSql<Binary, DB>,
    str: diesel::serialize::ToSql<Text, DB>,
    String: diesel::serialize::ToSql<Text, DB>,
{
    match param {
        Param::BigInt(value) => pass.push_bind_param::<Nullable<BigInt>, _>(value),
        Param::Integer(value) => pass.push_bind_param::<Nullable<Integer>, _>(value),
        Param::Bool(value) => pass.push_bind_param::<Bool, _>(value),
        Param::Text(value) => pass.push_bind_param::<Nullable<Text>, _>(value),
        Param::Binary(value) => pass.push_bind_param::<Binary, _>(value),
        Param::BigInts(_)
        | Param::Integers(_)
        | Param::Bools(_)
        | Param::Texts(_)
        | Param::Binaries(_) => Err(diesel::result::Error::QueryBuilderError(
            "arrays are for Postgres only".into(),
        )),
    }
}

#[cfg(feature = "postgres")]
impl QueryFragment<diesel::pg::Pg> for Rendered<'_> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, diesel::pg::Pg>) -> QueryResult<()> {
        use diesel::sql_types::Array;
        self.walk(pass, |param, pass| match param {
            Param::BigInts(values) => pass.push_bind_param::<Array<Nullable<BigInt>>, _>(values),
            Param::Integers(values) => pass.push_bind_param::<Array<Nullable<Integer>>, _>(values),
            Param::Bools(values) => pass.push_bind_param::<Array<Bool>, _>(values),
            Param::Texts(values) => pass.push_bind_param::<Array<Nullable<Text>>, _>(values),
            Param::Binaries(values) => pass.push_bind_param::<Array<Binary>, _>(values),
            scalar => push_scalar(scalar, pass),
        })
    }
}

#[cfg(feature = "sqlite")]
impl QueryFragment<diesel::sqlite::Sqlite> for Rendered<'_> {
    fn walk_ast<'b>(&'b self, pass: AstPass<'_, 'b, diesel::sqlite::Sqlite>) -> QueryResult<()> {
        self.walk(pass, push_scalar)
    }
}

// --- Parameters of statements ---

/// A parameter of a [`Statement`](Statement).
#[doc(hidden)]
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Param<'v> {
    BigInt(Option<i64>),
    Integer(Option<i32>),
    Bool(bool),
    Text(Option<Cow<'v, str>>),
    /// Bytes, in a statement of their own: the rows of an [`InputRows`] cannot have any.
    #[serde(skip)]
    Binary(Cow<'v, [u8]>),
    /// Arrays, for Postgres only.
    BigInts(Vec<Option<i64>>),
    Integers(Vec<Option<i32>>),
    Bools(Vec<bool>),
    Texts(Vec<Option<Cow<'v, str>>>),
    #[serde(skip)]
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "bound for Postgres only")
    )]
    Binaries(Vec<Vec<u8>>),
}

impl<'v> Param<'v> {
    /// Returns the values of one column as an array. They must be of one kind.
    pub(crate) fn array(values: impl Iterator<Item = Param<'v>>) -> Self {
        let mut values = values.peekable();
        match values.peek() {
            Some(Param::BigInt(_)) => Param::BigInts(values.filter_map(Param::big_int).collect()),
            Some(Param::Integer(_)) => Param::Integers(values.filter_map(Param::integer).collect()),
            Some(Param::Bool(_)) => Param::Bools(values.filter_map(Param::bool).collect()),
            _ => Param::Texts(values.filter_map(Param::text).collect()),
        }
    }

    fn big_int(self) -> Option<Option<i64>> {
        match self {
            Param::BigInt(value) => Some(value),
            _ => None,
        }
    }

    fn integer(self) -> Option<Option<i32>> {
        match self {
            Param::Integer(value) => Some(value),
            _ => None,
        }
    }

    fn bool(self) -> Option<bool> {
        match self {
            Param::Bool(value) => Some(value),
            _ => None,
        }
    }

    fn text(self) -> Option<Option<Cow<'v, str>>> {
        match self {
            Param::Text(value) => Some(value),
            _ => None,
        }
    }
}

impl From<i64> for Param<'_> {
    fn from(value: i64) -> Self {
        Param::BigInt(Some(value))
    }
}

impl From<&i64> for Param<'_> {
    fn from(value: &i64) -> Self {
        Param::BigInt(Some(*value))
    }
}

impl From<Option<i64>> for Param<'_> {
    fn from(value: Option<i64>) -> Self {
        Param::BigInt(value)
    }
}

impl From<i32> for Param<'_> {
    fn from(value: i32) -> Self {
        Param::Integer(Some(value))
    }
}

impl From<Option<i32>> for Param<'_> {
    fn from(value: Option<i32>) -> Self {
        Param::Integer(value)
    }
}

impl From<bool> for Param<'_> {
    fn from(value: bool) -> Self {
        Param::Bool(value)
    }
}

impl<'v> From<&'v str> for Param<'v> {
    fn from(value: &'v str) -> Self {
        Param::Text(Some(Cow::Borrowed(value)))
    }
}

impl<'v> From<&'v String> for Param<'v> {
    fn from(value: &'v String) -> Self {
        Param::Text(Some(Cow::Borrowed(value)))
    }
}

impl From<String> for Param<'_> {
    fn from(value: String) -> Self {
        Param::Text(Some(Cow::Owned(value)))
    }
}

impl<'v> From<Option<&'v str>> for Param<'v> {
    fn from(value: Option<&'v str>) -> Self {
        Param::Text(value.map(Cow::Borrowed))
    }
}

impl<'v> From<&'v Option<String>> for Param<'v> {
    fn from(value: &'v Option<String>) -> Self {
        value.as_deref().into()
    }
}

impl From<Option<String>> for Param<'_> {
    fn from(value: Option<String>) -> Self {
        Param::Text(value.map(Cow::Owned))
    }
}

impl<'v> From<&'v [u8]> for Param<'v> {
    fn from(value: &'v [u8]) -> Self {
        Param::Binary(Cow::Borrowed(value))
    }
}

impl From<Vec<Vec<u8>>> for Param<'_> {
    fn from(values: Vec<Vec<u8>>) -> Self {
        Param::Binaries(values)
    }
}

impl From<Vec<i64>> for Param<'_> {
    fn from(values: Vec<i64>) -> Self {
        Param::BigInts(values.into_iter().map(Some).collect())
    }
}

impl From<&[i64]> for Param<'_> {
    fn from(values: &[i64]) -> Self {
        values.to_vec().into()
    }
}

impl From<Vec<i32>> for Param<'_> {
    fn from(values: Vec<i32>) -> Self {
        Param::Integers(values.into_iter().map(Some).collect())
    }
}

impl<'v> From<&'v [String]> for Param<'v> {
    fn from(values: &'v [String]) -> Self {
        Param::Texts(values.iter().map(|text| Some(text.into())).collect())
    }
}

impl<'v> From<&[&'v str]> for Param<'v> {
    fn from(values: &[&'v str]) -> Self {
        Param::Texts(values.iter().map(|text| Some((*text).into())).collect())
    }
}

/// Rows that a statement reads, and the names of their columns.
///
/// Postgres gets an array for each column, because the parts of a JSON text would be parsed again for
/// each column of each row. SQLite gets one JSON text.
#[derive(Debug)]
pub(crate) struct InputRows<'v, const N: usize> {
    pub(crate) names: [&'static str; N],
    pub(crate) rows: Vec<[Param<'v>; N]>,
}

impl<'v, const N: usize> InputRows<'v, N> {
    /// Returns the item of a FROM clause, which is named `input`. It takes the first parameters.
    pub(crate) fn item(&self, dialect: Dialect) -> String {
        let part = |from: &dyn Fn(usize, &str) -> String| {
            let names = self.names.iter().enumerate();
            names
                .map(|(place, name)| from(place, name))
                .collect::<Vec<_>>()
                .join(", ")
        };
        match dialect {
            Dialect::Postgres => format!(
                "unnest({}) AS input ({})",
                part(&|place, _| format!("${}", place + 1)),
                self.names.join(", ")
            ),
            Dialect::Sqlite => format!(
                "(SELECT {} FROM json_each($1)) AS input",
                part(&|place, name| format!("value ->> {place} AS {name}"))
            ),
        }
    }

    /// Returns the parameters of that item.
    pub(crate) fn params(self, dialect: Dialect) -> Vec<Param<'v>> {
        match dialect {
            Dialect::Postgres => {
                let mut rows: Vec<_> = self.rows.into_iter().map(<[_; N]>::into_iter).collect();
                let column = |_| Param::array(rows.iter_mut().filter_map(Iterator::next));
                (0..N).map(column).collect()
            }
            Dialect::Sqlite => vec![
                serde_json::to_string(&RowsAsText(&self.rows))
                    .unwrap_or_default()
                    .into(),
            ],
        }
    }
}

/// Rows as JSON: each an array.
struct RowsAsText<'r, 'v, const N: usize>(&'r [[Param<'v>; N]]);

impl<const N: usize> Serialize for RowsAsText<'_, '_, N> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(<[_; N]>::as_slice))
    }
}
