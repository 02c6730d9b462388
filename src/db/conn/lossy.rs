//! Values of rows that others made, read so that no row makes a batch of them
//! unreadable.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::Text;

/// A text. SQLite keeps whatever bytes it is given, as text or not; those
/// that are no UTF-8 become U+FFFD.
#[derive(Debug, FromSqlRow)]
pub(crate) struct Lossy(String);

impl From<Lossy> for String {
    fn from(text: Lossy) -> Self {
        text.0
    }
}

#[cfg(feature = "postgres")]
impl FromSql<Text, diesel::pg::Pg> for Lossy {
    fn from_sql(value: diesel::pg::PgValue<'_>) -> deserialize::Result<Self> {
        Ok(Lossy(
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        ))
    }
}

#[cfg(feature = "sqlite")]
impl FromSql<Text, diesel::sqlite::Sqlite> for Lossy {
    fn from_sql(
        mut value: <diesel::sqlite::Sqlite as diesel::backend::Backend>::RawValue<'_>,
    ) -> deserialize::Result<Self> {
        Ok(Lossy(
            String::from_utf8_lossy(value.read_blob()).into_owned(),
        ))
    }
}
