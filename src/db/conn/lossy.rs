//! Values written by other programs, read so that no single row makes its batch unreadable.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::Text;

/// A text with its invalid bytes replaced by U+FFFD. SQLite stores any bytes as text, valid UTF-8
/// or not.
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
