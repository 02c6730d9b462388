//! The arguments of a job without the envelope that a database beside Rails puts around them.

use crate::db::conn::dialect::Lossy;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::{Nullable, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The arguments in a column, taken out of the envelope of
/// [`ActiveJobEnvelopes`](crate::RailsOption::ActiveJobEnvelopes). The envelope that Ruby makes stays.
#[derive(Debug, FromSqlRow)]
pub(crate) struct BareArguments(String);

impl From<BareArguments> for String {
    fn from(arguments: BareArguments) -> Self {
        arguments.0
    }
}

impl<DB> FromSql<Text, DB> for BareArguments
where
    DB: diesel::backend::Backend,
    Lossy: FromSql<Text, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let text = String::from(Lossy::from_sql(value)?);
        let bare = bare(&text).map(str::to_owned);
        Ok(BareArguments(bare.unwrap_or(text)))
    }
}

/// The same of a column that may be NULL.
#[derive(Debug, FromSqlRow)]
pub(crate) struct MaybeBareArguments(Option<String>);

impl From<MaybeBareArguments> for Option<String> {
    fn from(arguments: MaybeBareArguments) -> Self {
        arguments.0
    }
}

impl<DB> FromSql<Nullable<Text>, DB> for MaybeBareArguments
where
    DB: diesel::backend::Backend,
    BareArguments: FromSql<Text, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let BareArguments(text) = BareArguments::from_sql(value)?;
        Ok(MaybeBareArguments(Some(text)))
    }

    fn from_nullable_sql(value: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        value.map_or(Ok(MaybeBareArguments(None)), Self::from_sql)
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    arguments: [&'a RawValue; 1],
    windlass: bool,
}

/// Returns the arguments in the envelope, if this is one. Ruby may have changed the rest of it, and written it anew.
fn bare(text: &str) -> Option<&str> {
    if !text.starts_with("{\"job_class\":") || !text.ends_with(",\"windlass\":true}") {
        return None;
    }
    let envelope: Envelope<'_> = serde_json::from_str(text).ok()?;
    let [arguments] = envelope.arguments;
    envelope.windlass.then(|| arguments.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_envelope_is_taken_off() {
        let ours = r#"{"job_class":"a","arguments":[{"n": 18446744073709551616}],"executions":0,"windlass":true}"#;
        assert_eq!(bare(ours), Some(r#"{"n": 18446744073709551616}"#));
        for other in [
            r#"{"job_class":"a","arguments":[1],"executions":0}"#,
            r#"{"job_class":"a","arguments":[1,2],"windlass":true}"#,
            r#"{"windlass":true}"#,
        ] {
            assert_eq!(bare(other), None, "{other}");
        }
    }
}
