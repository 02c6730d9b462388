//! The kinds of values, and how they are read and shown.

use crate::config::document::{DocumentEntry, Origin};
use std::path::PathBuf;
use toml::Value;
use windlass::Database;
use windlass::database::Pooling;
use windlass::internal::db::conn::address::without_secrets;
use windlass::internal::db::conn::listening::check_listen_url;
use windlass::internal::recurring::time_zone::Zone;
use windlass::queues::QueueSelector;

/// A kind of value that a setting can have.
pub(crate) struct ValueKind<T> {
    /// Its name in the reference.
    pub(crate) name: &'static str,
    /// Reads a value. The error contains what is expected, not the place.
    pub(crate) read: fn(&DocumentEntry) -> Result<T, String>,
    /// Returns the value as written in the file, without secrets.
    pub(crate) show: fn(&T) -> String,
}

impl DocumentEntry {
    /// Returns a text, which the file has in quotes. The error is that the value is not `what`.
    pub(crate) fn text(&self, what: &str) -> Result<&str, String> {
        let text = self.value.as_str();
        text.map_or_else(|| expected(what, &self.value), Ok)
    }

    /// Returns a text from the environment or the command line, which may be a number or a flag.
    pub(crate) fn untyped(&self) -> Option<&str> {
        match self.origin {
            Origin::Environment(_) | Origin::Argument(_) => self.value.as_str().map(str::trim),
            Origin::Default | Origin::File { .. } => None,
        }
    }
}

pub(crate) fn expected<T>(what: &str, value: &Value) -> Result<T, String> {
    let found = match value {
        Value::String(text) => format!("`{text}`"),
        Value::Integer(number) => format!("the number {number}"),
        Value::Float(number) => format!("the number {number:?}"),
        Value::Boolean(value) => format!("`{value}`"),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
        Value::Datetime(_) => "a datetime".to_owned(),
    };
    Err(format!("{found} is not {what}"))
}

/// Quotes a text; JSON's strings are valid in TOML too.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A flag.
pub(crate) const FLAG: ValueKind<bool> = ValueKind {
    name: "true or false",
    read: |entry| match (&entry.value, entry.untyped()) {
        (Value::Boolean(value), _) => Ok(*value),
        (_, Some("true" | "1")) => Ok(true),
        (_, Some("false" | "0")) => Ok(false),
        (value, _) => expected("`true` or `false`", value),
    },
    show: bool::to_string,
};

/// A time zone.
pub(crate) const TIME_ZONE: ValueKind<Zone> = ValueKind {
    name: "time zone",
    read: |entry| {
        let name = entry.text("the name of a time zone in quotes")?;
        name.trim().parse()
    },
    show: |zone| quoted(zone.name()),
};

/// A path; empty if not set.
pub(crate) const PATH: ValueKind<PathBuf> = ValueKind {
    name: "path",
    read: |entry| entry.text("a path in quotes").map(PathBuf::from),
    show: |path| quoted(&path.display().to_string()),
};

/// A name; empty if not set.
pub(crate) const TEXT: ValueKind<String> = ValueKind {
    name: "text",
    read: |entry| {
        let text = entry.text("a text in quotes")?.trim();
        if text.len() > 255 || text.contains('\0') {
            return Err("it may have up to 255 bytes, and no NUL".to_owned());
        }
        Ok(text.to_owned())
    },
    show: |text| quoted(text),
};

/// An address to listen on: a host and a port; empty if not set.
pub(crate) const HOST_PORT: ValueKind<String> = ValueKind {
    name: "host and port",
    read: |entry| {
        let what = "a host and a port in quotes, such as `127.0.0.1:4041`";
        let text = entry.text(what)?.trim();
        let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !text.is_empty() && !matches!(port, Some(Ok(_))) {
            let what = "a host and a port, such as `127.0.0.1:4041`";
            return expected(what, &entry.value);
        }
        Ok(text.to_owned())
    },
    show: |address| quoted(address),
};

/// The address of a database, which may contain a password; empty if not set.
pub(crate) const ADDRESS: ValueKind<String> = ValueKind {
    name: "address",
    read: |entry| address(entry, |url| Database::open(url).map(drop)),
    show: |url| quoted(&without_secrets(url)),
};

/// The address of a server on which to listen, which may contain a password; empty if not set.
pub(crate) const LISTEN_ADDRESS: ValueKind<String> = ValueKind {
    name: "address",
    read: |entry| address(entry, check_listen_url),
    show: |url| quoted(&without_secrets(url)),
};

fn address(
    entry: &DocumentEntry,
    check: fn(&str) -> windlass::Result<()>,
) -> Result<String, String> {
    match entry.value.as_str().map(str::trim) {
        Some("") => Ok(String::new()),
        Some(url) => match check(url) {
            Ok(()) => Ok(url.to_owned()),
            Err(error) => Err(error.to_string()),
        },
        // The value is not shown, because it may contain a password.
        None => Err("it is not an address in quotes".to_owned()),
    }
}

/// The mode of a pooler before the database.
pub(crate) const POOLING: ValueKind<Pooling> = ValueKind {
    name: "\"auto\", \"session\" or \"transaction\"",
    read: |entry| {
        let known = entry.value.as_str().map(str::trim).and_then(Pooling::parse);
        let what = "`auto`, `session` or `transaction`";
        known.map_or_else(|| expected(what, &entry.value), Ok)
    },
    show: |pooling| quoted(pooling.as_str()),
};

// --- Lists, which may also be written as one string ---

/// Queues to serve, in order.
pub(crate) const QUEUE_LIST: ValueKind<Vec<QueueSelector>> = ValueKind {
    name: "list of queues",
    read: |entry| {
        let names = texts(entry, ',')?;
        if names.is_empty() {
            return Err("it names no queue; \"*\" serves all".to_owned());
        }
        let queues = names.iter().map(|name| name.trim().parse());
        let queues: windlass::Result<_> = queues.collect();
        queues.map_err(|error| error.to_string())
    },
    show: |queues| list(queues.iter().map(ToString::to_string)),
};

/// A program and its arguments; empty if not set.
pub(crate) const PROGRAM: ValueKind<Vec<String>> = ValueKind {
    name: "list of texts",
    read: |entry| match (&entry.value, entry.untyped()) {
        (Value::String(path), None) => Ok(vec![path.clone()]),
        _ => texts(entry, ' '),
    },
    show: |program| list(program.iter().cloned()),
};

/// Texts; empty if not set.
pub(crate) const TEXT_LIST: ValueKind<Vec<String>> = ValueKind {
    name: "list of texts",
    read: |entry| texts(entry, ','),
    show: |texts| list(texts.iter().cloned()),
};

/// Databases by name, as `NAME=ADDRESS`, which may contain passwords; empty if not set.
pub(crate) const NAMED_ADDRESSES: ValueKind<Vec<(String, String)>> = ValueKind {
    name: "list of `NAME=ADDRESS`",
    read: |entry| {
        let items = texts(entry, ',');
        let items = items.map_err(|_| NOT_NAMED_ADDRESS.to_owned())?;
        items.iter().map(|item| named_address(item)).collect()
    },
    show: |databases| {
        let items = databases.iter();
        list(items.map(|(name, url)| format!("{name}={}", without_secrets(url))))
    },
};

/// An error that does not show the value, because it may contain a password.
const NOT_NAMED_ADDRESS: &str =
    "each is written as `NAME=ADDRESS`, such as `billing=postgres://db/billing`";

fn named_address(item: &str) -> Result<(String, String), String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match item.split_once('=') {
        Some((name, url)) if !name.is_empty() && name.bytes().all(is_name) => {
            match Database::open(url) {
                Ok(_) => Ok((name.to_owned(), url.trim().to_owned())),
                Err(error) => Err(error.to_string()),
            }
        }
        _ => Err(NOT_NAMED_ADDRESS.to_owned()),
    }
}

/// Reads a list, or its items from one string.
fn texts(entry: &DocumentEntry, between: char) -> Result<Vec<String>, String> {
    match &entry.value {
        Value::String(text) => {
            let items = text.split(between).map(str::trim);
            let items = items.filter(|item| !item.is_empty());
            Ok(items.map(str::to_owned).collect())
        }
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(text.clone()),
                other => expected("a text in quotes", other),
            })
            .collect(),
        other => expected("a list of texts", other),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.map(|item| quoted(&item)).collect();
    format!("[{}]", items.join(", "))
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
pub(crate) const REVISION_VARIABLE: &str = windlass::internal::process::base::stop::REVISION;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::amounts::{
        BYTES, BYTES_OR_NEVER, DURATION, DURATION_OR_FOREVER, INTERVAL, INTERVAL_OR_NEVER, NUMBER,
        NUMBER_OR_AUTO, NUMBER_OR_NEVER, NUMBER_OR_UNLIMITED, WHOLE_NUMBER,
    };
    use std::time::Duration;

    fn entry(value: Value) -> DocumentEntry {
        let origin = Origin::File {
            file: String::new(),
            line: 1,
        };
        DocumentEntry { value, origin }
    }

    fn text(text: &str) -> DocumentEntry {
        entry(Value::String(text.to_owned()))
    }

    #[test]
    fn durations_have_units() {
        let read = DURATION.read;
        assert_eq!(read(&text("10s")), Ok(Duration::from_secs(10)));
        assert_eq!(read(&text("5 min")), Ok(Duration::from_secs(300)));
        assert_eq!(read(&text("0s")), Ok(Duration::ZERO));
        let naked = read(&entry(Value::Integer(10)));
        assert!(naked.unwrap_err().contains("write \"10s\""));
        assert!(read(&text("10 parsecs")).is_err());
        assert!((INTERVAL.read)(&text("0s")).is_err());
        assert_eq!((DURATION.show)(&Duration::from_secs(90)), "\"1m 30s\"");
    }

    #[test]
    fn sizes_have_units() {
        for (written, bytes, shown) in [
            ("512 MiB", 512 << 20, "\"512 MiB\""),
            ("1024MiB", 1 << 30, "\"1 GiB\""),
            ("2 GB", 2_000_000_000, "\"1953125 KiB\""),
            ("7B", 7, "\"7 B\""),
        ] {
            let read = (BYTES.read)(&text(written)).unwrap();
            let back = (BYTES.show)(&read);
            assert_eq!((read, back.as_str()), (bytes, shown), "{written}");
        }
        for wrong in ["512", "MiB", "5 mib", "0 B", "99999999999 TiB", "-5 B", ""] {
            assert!((BYTES.read)(&text(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        fn back<T: PartialEq + std::fmt::Debug>(kind: ValueKind<T>, value: T) {
            let shown: toml::Table = format!("x = {}", (kind.show)(&value)).parse().unwrap();
            assert_eq!((kind.read)(&entry(shown["x"].clone())), Ok(value));
        }
        back(DURATION, Duration::from_millis(1500));
        back(INTERVAL, Duration::from_secs(60));
        back(WHOLE_NUMBER, 7);
        back(FLAG, true);
        back(BYTES, 3 << 20);
        back(BYTES_OR_NEVER, None);
        back(NUMBER_OR_NEVER, Some(3));
        back(INTERVAL_OR_NEVER, Some(Duration::from_secs(6 * 3600)));
        back(DURATION_OR_FOREVER, None);
        back(NUMBER_OR_UNLIMITED, Some(9));
        back(NUMBER_OR_AUTO, None);
        back(NUMBER, 0);
        back(TIME_ZONE, "Europe/Berlin".parse().unwrap());
        back(
            QUEUE_LIST,
            vec!["mail".parse().unwrap(), "a*".parse().unwrap()],
        );
        back(PROGRAM, vec!["a \"b\"".to_owned(), "c".to_owned()]);
        back(PATH, PathBuf::from("/run/a b.pid"));
        back(HOST_PORT, "[::1]:4041".to_owned());
        back(HOST_PORT, String::new());
        for wrong in ["127.0.0.1", "4041", "host:", "host:65536", "http://host/"] {
            assert!((HOST_PORT.read)(&text(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = (ADDRESS.show)(&"postgres://me:hunter2@db/app".to_owned());
        assert_eq!(shown, "\"postgres://db/app\"");
    }
}
