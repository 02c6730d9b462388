//! Queue names, and the selection of the queues that a worker serves.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The longest name of a queue, a class or a key, in bytes.
pub(crate) const MAX_NAME: usize = 255;

/// The characters that a name of a queue or a class may have beside ASCII letters and digits.
pub(crate) const NAME_MARKS: &str = "_.:/-";

/// Accepts only names that are safe without escaping in a log line, an address and a pattern.
pub fn check_name(name: &str, what: &'static str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || NAME_MARKS.contains(c);
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME {
        "it is longer than 255 bytes"
    } else if !name.chars().all(allowed) {
        "only ASCII letters, digits and `_` `.` `:` `/` `-` are allowed"
    } else {
        return Ok(());
    };
    Err(Error::InvalidName {
        name: name
            .chars()
            .take(80)
            .flat_map(char::escape_default)
            .collect(),
        what,
        reason,
    })
}

/// Selects the queues that a worker serves: one by name, all with a prefix, or all.
///
/// ```
/// use windlass::queues::QueueSelector;
/// let mail: QueueSelector = "mail".parse()?;
/// let imports: QueueSelector = "import*".parse()?;
/// assert!(imports.matches("import_users"));
/// assert!("*".parse::<QueueSelector>()?.matches("anything"));
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueSelector {
    /// `*`: all queues.
    All,
    /// `mail`: this queue.
    Name(String),
    /// `import*`: every queue whose name starts with the prefix.
    Prefix(String),
}

impl QueueSelector {
    /// Returns `true` if this selects the queue with the given name.
    pub fn matches(&self, queue: &str) -> bool {
        match self {
            QueueSelector::All => true,
            QueueSelector::Name(name) => name == queue,
            QueueSelector::Prefix(prefix) => queue.starts_with(prefix),
        }
    }
}

impl FromStr for QueueSelector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "*" {
            return Ok(QueueSelector::All);
        }
        let (name, make): (&str, fn(String) -> Self) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, QueueSelector::Prefix),
            None => (text, QueueSelector::Name),
        };
        check_name(name, "queue name, prefix (`mail*`) or `*`")?;
        Ok(make(name.to_owned()))
    }
}

impl fmt::Display for QueueSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueSelector::All => f.write_str("*"),
            QueueSelector::Name(name) => f.write_str(name),
            QueueSelector::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        let long = "x".repeat(256);
        for name in [
            "",
            "a b",
            "a*b",
            "ä",
            "a\0",
            "a\n",
            long.as_str(),
            "'; DROP",
        ] {
            assert!(check_name(name, "queue name").is_err(), "{name:?}");
        }
        for name in ["default", "My::Job", "a/b-c.d_1", &long[..255]] {
            assert!(check_name(name, "queue name").is_ok(), "{name:?}");
        }
    }

    #[test]
    fn selectors_print_as_they_are_written() {
        for text in ["*", "mail", "import*"] {
            let selector: QueueSelector = text.parse().unwrap();
            assert_eq!(selector.to_string(), text);
        }
        assert!("a*b".parse::<QueueSelector>().is_err());
    }
}
