//! Settings about a pooler before the database.

use crate::config::document::Value;
use crate::config::value::{ValueKind, expected, quoted};
use crate::db::conn::address::without_secrets;
use crate::db::conn::listening::check_listen_url;
use crate::db::conn::pooling::pooler::Pooling;

impl ValueKind for Pooling {
    const NAME: &'static str = "\"auto\", \"session\" or \"transaction\"";

    fn read(value: &Value) -> Result<Self, String> {
        let known = match value {
            Value::Text(text) | Value::Untyped(text) => Pooling::parse(text.trim()),
            _ => None,
        };
        known.map_or_else(|| expected("`auto`, `session` or `transaction`", value), Ok)
    }

    fn show(&self) -> String {
        quoted(self.as_str())
    }
}

/// The address of a server on which to listen, which may contain a password; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) String);

impl ValueKind for ListenAddress {
    const NAME: &'static str = "address";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Untyped(text) => match text.trim() {
                "" => Ok(ListenAddress(String::new())),
                text => match check_listen_url(text) {
                    Ok(()) => Ok(ListenAddress(text.to_owned())),
                    Err(error) => Err(error.to_string()),
                },
            },
            // The value is not shown, because it may contain a password.
            _ => Err("it is not an address in quotes".to_owned()),
        }
    }

    fn show(&self) -> String {
        quoted(&without_secrets(&self.0))
    }
}
