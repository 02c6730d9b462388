//! Parameters of statements.

use crate::db::conn::dialect::Dialect;
use serde::Serialize;
use std::borrow::Cow;

/// A parameter of a [`Statement`](super::statement::Statement).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Param<'v> {
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
