//! The kinds of values, and how they are read and shown.

use crate::config::document::Value;
use crate::db::conn::address::without_secrets;
use crate::db::conn::listening::check_listen_url;
use crate::db::conn::pooling::pooler::Pooling;
use crate::queue::QueueSelector;
use crate::recurring::time_zone::Zone;
use std::path::PathBuf;

/// A kind of value that a setting can have.
pub(crate) trait ValueKind: Sized + Clone {
    /// Its name in the reference.
    const NAME: &'static str;

    /// Reads a value. The error contains what is expected, not the place.
    fn read(value: &Value) -> Result<Self, String>;

    /// Returns the value as written in the file, without secrets.
    fn show(&self) -> String;
}

pub(crate) fn expected<T>(what: &str, value: &Value) -> Result<T, String> {
    let found = match value {
        Value::Text(text) | Value::Untyped(text) => format!("`{text}`"),
        Value::Integer(number) | Value::Float(number) => format!("the number {number}"),
        Value::Boolean(value) => format!("`{value}`"),
        Value::List(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        Value::Other(name) => format!("a {name}"),
    };
    Err(format!("{found} is not {what}"))
}

/// Quotes a text; JSON's strings are valid in TOML too.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl ValueKind for bool {
    const NAME: &'static str = "true or false";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Boolean(value) => Ok(*value),
            Value::Untyped(text) if ["true", "1"].contains(&text.trim()) => Ok(true),
            Value::Untyped(text) if ["false", "0"].contains(&text.trim()) => Ok(false),
            _ => expected("`true` or `false`", value),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl ValueKind for Zone {
    const NAME: &'static str = "time zone";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Untyped(text) => {
                let name = text.trim();
                name.parse()
            }
            _ => expected("the name of a time zone in quotes", value),
        }
    }

    fn show(&self) -> String {
        quoted(self.name())
    }
}

/// A path; empty if not set.
impl ValueKind for PathBuf {
    const NAME: &'static str = "path";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Untyped(text) => Ok(PathBuf::from(text)),
            _ => expected("a path in quotes", value),
        }
    }

    fn show(&self) -> String {
        quoted(&self.display().to_string())
    }
}

/// A name; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameText(pub(crate) String);

impl ValueKind for NameText {
    const NAME: &'static str = "text";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Untyped(text) => {
                let text = text.trim();
                if text.len() > 255 || text.contains('\0') {
                    return Err("it may have up to 255 bytes, and no NUL".to_owned());
                }
                Ok(NameText(text.to_owned()))
            }
            _ => expected("a text in quotes", value),
        }
    }

    fn show(&self) -> String {
        quoted(&self.0)
    }
}

/// An address to listen on: a host and a port; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort(pub(crate) String);

impl ValueKind for HostPort {
    const NAME: &'static str = "host and port";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Untyped(text) => {
                let text = text.trim();
                let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
                if !text.is_empty() && !matches!(port, Some(Ok(_))) {
                    return expected("a host and a port, such as `127.0.0.1:4041`", value);
                }
                Ok(HostPort(text.to_owned()))
            }
            _ => expected(
                "a host and a port in quotes, such as `127.0.0.1:4041`",
                value,
            ),
        }
    }

    fn show(&self) -> String {
        quoted(&self.0)
    }
}

/// The address of a database, which may contain a password; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) String);

impl ValueKind for Address {
    const NAME: &'static str = "address";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Untyped(text) => match text.trim() {
                "" => Ok(Address(String::new())),
                text => match crate::db::conn::database::Database::open(text) {
                    Ok(_) => Ok(Address(text.to_owned())),
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

// --- Lists, which may also be written as one string ---

/// Queues to serve, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueList(pub(crate) Vec<QueueSelector>);

impl ValueKind for QueueList {
    const NAME: &'static str = "list of queues";

    fn read(value: &Value) -> Result<Self, String> {
        let names = texts(value, ',')?;
        if names.is_empty() {
            return Err("it names no queue; \"*\" serves all".to_owned());
        }
        let names = names.iter().map(|name| name.trim().parse());
        let names: crate::error::Result<_> = names.collect();
        names.map(QueueList).map_err(|error| error.to_string())
    }

    fn show(&self) -> String {
        list(self.0.iter().map(ToString::to_string))
    }
}

/// A program and its arguments; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerProgram(pub(crate) Vec<String>);

impl ValueKind for WorkerProgram {
    const NAME: &'static str = "list of texts";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(path) => Ok(WorkerProgram(vec![path.clone()])),
            _ => texts(value, ' ').map(WorkerProgram),
        }
    }

    fn show(&self) -> String {
        list(self.0.iter().cloned())
    }
}

/// Texts; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextList(pub(crate) Vec<String>);

impl ValueKind for TextList {
    const NAME: &'static str = "list of texts";

    fn read(value: &Value) -> Result<Self, String> {
        texts(value, ',').map(TextList)
    }

    fn show(&self) -> String {
        list(self.0.iter().cloned())
    }
}

/// Databases by name, as `NAME=ADDRESS`, which may contain passwords; empty if not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedAddresses(pub(crate) Vec<(String, String)>);

impl ValueKind for NamedAddresses {
    const NAME: &'static str = "list of `NAME=ADDRESS`";

    fn read(value: &Value) -> Result<Self, String> {
        // The error does not show the value, because it may contain a password.
        let wrong = || "each is written as `NAME=ADDRESS`, such as `billing=postgres://db/billing`";
        let items = texts(value, ',').map_err(|_| wrong().to_owned())?;
        let pairs = items.into_iter().map(|item| {
            let (name, address) = item.split_once('=').ok_or_else(wrong)?;
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(wrong().to_owned());
            }
            match crate::db::conn::database::Database::open(address) {
                Ok(_) => Ok((name.to_owned(), address.trim().to_owned())),
                Err(error) => Err(error.to_string()),
            }
        });
        pairs.collect::<Result<_, _>>().map(NamedAddresses)
    }

    fn show(&self) -> String {
        let shown = self
            .0
            .iter()
            .map(|(name, address)| format!("{name}={}", without_secrets(address)));
        list(shown)
    }
}

/// Reads a list, or its items from one string.
fn texts(value: &Value, between: char) -> Result<Vec<String>, String> {
    match value {
        Value::Text(text) | Value::Untyped(text) => {
            let items = text.split(between).map(str::trim);
            Ok(items
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect())
        }
        Value::List(items) => items
            .iter()
            .map(|item| match item {
                Value::Text(text) => Ok(text.clone()),
                other => expected("a text in quotes", other),
            })
            .collect(),
        _ => expected("a list of texts", value),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| quoted(&item)).collect();
    format!("[{}]", items.join(", "))
}

// --- Settings about a pooler before the database ---

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

// --- Names shared by the configuration and its readers ---

/// The table of what is promised about queues.
pub(crate) const QUEUES: &str = "queues";

/// The table of recurring tasks.
pub(crate) const TABLE: &str = "recurring";

/// The variable with the path of the file, for a program and the workers that it starts.
pub(crate) const FILE_VARIABLE: &str = "WINDLASS_CONFIG";

/// The variable with the number of the `[[workers]]` entry that a process runs, starting at 1.
pub(crate) const WORKER_VARIABLE: &str = "WINDLASS_WORKER";

/// The variable with the name of the deployment, for schedulers that are given none.
pub(crate) const REVISION_VARIABLE: &str = crate::process::base::stop::REVISION;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::amounts::Bytes;
    use crate::config::amounts::Interval;
    use crate::config::amounts::Number;
    use crate::config::amounts::WholeNumber;
    use crate::config::settings::Auto;
    use crate::config::settings::Forever;
    use crate::config::settings::Never;
    use crate::config::settings::Unlimited;
    use crate::config::value::QueueList;
    use crate::config::value::WorkerProgram;
    use std::time::Duration;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(Duration::read(&text("10s")), Ok(Duration::from_secs(10)));
        assert_eq!(Duration::read(&text("5 min")), Ok(Duration::from_secs(300)));
        assert_eq!(Duration::read(&text("0s")), Ok(Duration::ZERO));
        let naked = Duration::read(&Value::Integer("10".to_owned()));
        assert!(naked.unwrap_err().contains("write \"10s\""));
        assert!(Duration::read(&text("10 parsecs")).is_err());
        assert!(Interval::read(&text("0s")).is_err());
        assert_eq!(Duration::from_secs(90).show(), "\"1m 30s\"");
    }

    #[test]
    fn sizes_have_units() {
        for (written, bytes, shown) in [
            ("512 MiB", 512 << 20, "\"512 MiB\""),
            ("1024MiB", 1 << 30, "\"1 GiB\""),
            ("2 GB", 2_000_000_000, "\"1953125 KiB\""),
            ("7B", 7, "\"7 B\""),
        ] {
            let read = Bytes::read(&text(written)).unwrap();
            assert_eq!((read.0, read.show().as_str()), (bytes, shown), "{written}");
        }
        for wrong in ["512", "MiB", "5 mib", "0 B", "99999999999 TiB", "-5 B", ""] {
            assert!(Bytes::read(&text(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        fn back<T: ValueKind + PartialEq + std::fmt::Debug>(value: T) {
            let shown: toml::Table = format!("x = {}", value.show()).parse().unwrap();
            let written = match &shown["x"] {
                toml::Value::String(text) => Value::Text(text.clone()),
                toml::Value::Integer(number) => Value::Integer(number.to_string()),
                toml::Value::Boolean(value) => Value::Boolean(*value),
                toml::Value::Array(items) => Value::List(
                    items
                        .iter()
                        .map(|item| text(item.as_str().unwrap()))
                        .collect(),
                ),
                other => panic!("{other:?}"),
            };
            assert_eq!(T::read(&written), Ok(value));
        }
        back(Duration::from_millis(1500));
        back(Interval(Duration::from_secs(60)));
        back(WholeNumber(7));
        back(true);
        back(Bytes(3 << 20));
        back(Never::<Bytes>(None));
        back(Never(Some(WholeNumber(3))));
        back(Never(Some(Interval(Duration::from_secs(6 * 3600)))));
        back(Forever(None));
        back(Unlimited(Some(WholeNumber(9))));
        back(Auto(None));
        back(Number(0));
        back("Europe/Berlin".parse::<Zone>().unwrap());
        back(QueueList(vec![
            "mail".parse().unwrap(),
            "a*".parse().unwrap(),
        ]));
        back(WorkerProgram(vec!["a \"b\"".to_owned(), "c".to_owned()]));
        back(PathBuf::from("/run/a b.pid"));
        back(HostPort("[::1]:4041".to_owned()));
        back(HostPort(String::new()));
        for wrong in ["127.0.0.1", "4041", "host:", "host:65536", "http://host/"] {
            assert!(HostPort::read(&text(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let address = Address("postgres://me:hunter2@db/app".to_owned());
        assert_eq!(address.show(), "\"postgres://db/app\"");
    }
}
