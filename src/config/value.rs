//! The kinds of values, and how they are read and shown.

use crate::config::document::Value;
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
        quoted(&crate::db::conn::address::without_secrets(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::absent::Auto;
    use crate::config::absent::Forever;
    use crate::config::absent::Never;
    use crate::config::absent::Unlimited;
    use crate::config::amounts::Bytes;
    use crate::config::amounts::Interval;
    use crate::config::amounts::Number;
    use crate::config::amounts::WholeNumber;
    use crate::config::lists::QueueList;
    use crate::config::lists::WorkerProgram;
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
