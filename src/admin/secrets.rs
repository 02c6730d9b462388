//! Which parts of the arguments of a class are shown.

use crate::db::Conn;
use crate::db::table::classes;
use crate::job::arguments::redact::{self, HIDDEN};
use diesel::QueryResult;
use serde_json::Value;

/// Which arguments are hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Secrets {
    None,
    /// The fields with these names.
    Named(Vec<String>),
    /// All: no worker has registered which of them are secret.
    All,
}

impl Secrets {
    /// Returns which arguments of a class are hidden.
    pub(crate) fn of_class(conn: &mut Conn<'_>, class: &str) -> QueryResult<Self> {
        let names = classes::redact(conn, class)?;
        Ok(names.map_or(Secrets::All, Secrets::Named))
    }

    /// Returns JSON text with what is secret replaced.
    pub(crate) fn show(&self, text: &str) -> Value {
        let value = serde_json::from_str(text);
        match (self, value) {
            (Secrets::None, value) => value.unwrap_or_else(|_| text.into()),
            // If it cannot be read, its secret parts are unknown too.
            (Secrets::All, _) | (Secrets::Named(_), Err(_)) => HIDDEN.into(),
            (Secrets::Named(names), Ok(mut value)) => {
                redact::hide(&mut value, names);
                value
            }
        }
    }
    /// Returns a value with what is secret replaced.
    #[cfg(feature = "web")]
    pub(crate) fn hide(&self, mut value: Value) -> Value {
        match self {
            Secrets::None => {}
            Secrets::Named(names) => redact::hide(&mut value, names),
            Secrets::All => value = HIDDEN.into(),
        }
        value
    }

    /// Returns whether JSON text contains one of the texts where it is shown. Spaces do not count, as
    /// programs set them differently.
    #[cfg(feature = "web")]
    pub(crate) fn shows(&self, arguments: &str, texts: &[String]) -> bool {
        match self {
            Secrets::All => return false,
            Secrets::Named(names) if !names.is_empty() => {}
            _ => return true,
        }
        let packed = |text: &str| -> String { text.split(' ').collect() };
        let shown = packed(&self.show(arguments).to_string());
        texts.iter().any(|text| shown.contains(&packed(text)))
    }
}
