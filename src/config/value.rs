//! The kinds of values, how they are read and how they are shown.

use super::source::Table;
use crate::queue::QueueSelector;
use std::path::PathBuf;
use std::time::Duration;

/// A value as it was written.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Integer(String),
    Float(String),
    Boolean(bool),
    List(Vec<Value>),
    Table(Table),
    /// Of the environment or the command line, which know of no types.
    Untyped(String),
    /// What no setting takes, by its name.
    Other(&'static str),
}

/// What a setting can be.
pub(super) trait Kind: Sized + Clone {
    /// What the reference calls it.
    const NAME: &'static str;

    /// The error says what is expected, not where.
    fn read(value: &Value) -> Result<Self, String>;

    /// As it would stand in the file, without secrets.
    fn show(&self) -> String;
}

pub(super) fn expected<T>(what: &str, value: &Value) -> Result<T, String> {
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

/// JSON's strings are TOML's too.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A duration that may be zero.
impl Kind for Duration {
    const NAME: &'static str = "duration";

    fn read(value: &Value) -> Result<Self, String> {
        let what = "a duration; write a number and its unit, such as \"10s\" or \"5 min\"";
        match value {
            Value::Text(text) | Value::Untyped(text) => {
                humantime::parse_duration(text).or_else(|_| expected(what, value))
            }
            Value::Integer(number) => Err(format!(
                "the number {number} has no unit; write \"{number}s\" or \"{number} min\", for example"
            )),
            _ => expected(what, value),
        }
    }

    fn show(&self) -> String {
        quoted(&humantime::format_duration(*self).to_string())
    }
}

/// A duration above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Duration);

impl Kind for Interval {
    const NAME: &'static str = "duration";

    fn read(value: &Value) -> Result<Self, String> {
        match Duration::read(value)? {
            Duration::ZERO => Err("it must be above zero".to_owned()),
            duration => Ok(Interval(duration)),
        }
    }

    fn show(&self) -> String {
        self.0.show()
    }
}

/// A whole number above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u32);

impl Kind for Count {
    const NAME: &'static str = "number";

    fn read(value: &Value) -> Result<Self, String> {
        let what = "a whole number from 1 on";
        match value {
            Value::Integer(number) | Value::Untyped(number) => match number.trim().parse() {
                Ok(0) | Err(_) => expected(what, value),
                Ok(number) => Ok(Count(number)),
            },
            Value::Text(text) if text.trim().parse::<u32>().is_ok() => {
                Err(format!("write {} without quotes", text.trim()))
            }
            _ => expected(what, value),
        }
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

impl Kind for bool {
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

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

/// The binary ones last and in order: `show` takes the largest that fits.
const BYTES: [(&str, u64); 8] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl Kind for Bytes {
    const NAME: &'static str = "size";

    fn read(value: &Value) -> Result<Self, String> {
        let what = "a size; write a whole number and its unit, such as \"512 MiB\" or \"2 GB\"";
        let (Value::Text(text) | Value::Untyped(text)) = value else {
            return expected(what, value);
        };
        let text = text.trim();
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = text.strip_suffix(unit).unwrap_or_default();
        let unit = unit.trim();
        let unit = BYTES.iter().find(|(name, _)| *name == unit);
        match (number.parse::<u64>(), unit) {
            (Ok(number), Some((_, unit))) if number > 0 => number
                .checked_mul(*unit)
                .map(Bytes)
                .ok_or_else(|| format!("`{text}` is too much")),
            _ => expected(what, value),
        }
    }

    fn show(&self) -> String {
        let units = BYTES.iter().skip(4).rev();
        let mut units = units.filter(|(_, unit)| self.0.is_multiple_of(*unit));
        let (name, unit) = units.next().unwrap_or(&BYTES[0]);
        quoted(&format!("{} {name}", self.0 / unit))
    }
}

/// A whole number from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u32);

impl Kind for Number {
    const NAME: &'static str = "number from 0 on";

    fn read(value: &Value) -> Result<Self, String> {
        let what = "a whole number from 0 on";
        match value {
            Value::Integer(number) | Value::Untyped(number) => number
                .trim()
                .parse()
                .map(Number)
                .or_else(|_| expected(what, value)),
            _ => expected(what, value),
        }
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

impl Kind for chrono_tz::Tz {
    const NAME: &'static str = "time zone";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Untyped(text) => {
                let name = text.trim();
                name.parse().map_err(|_| no_zone(name))
            }
            _ => expected("the name of a time zone in quotes", value),
        }
    }

    fn show(&self) -> String {
        quoted(self.name())
    }
}

fn no_zone(name: &str) -> String {
    let city = format!("/{}", name.to_lowercase());
    let mut zones = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name());
    match zones.find(|zone| zone.to_lowercase().ends_with(&city)) {
        Some(zone) => format!("there is no time zone `{name}`; did you mean `{zone}`?"),
        None => {
            format!("there is no time zone `{name}`; one is `UTC`, another `Europe/Berlin`")
        }
    }
}

/// What a word stands for the absence of.
fn absent_or<T: Kind>(word: &str, value: &Value) -> Result<Option<T>, String> {
    match value {
        Value::Text(text) | Value::Untyped(text) if text.trim() == word => Ok(None),
        _ => T::read(value)
            .map(Some)
            .map_err(|message| format!("{message}, or \"{word}\"")),
    }
}

fn shown_or<T: Kind>(word: &str, value: Option<&T>) -> String {
    value.map_or_else(|| quoted(word), Kind::show)
}

/// Something that need not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Never<T>(pub(crate) Option<T>);

impl Kind for Never<Interval> {
    const NAME: &'static str = "duration or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

impl Kind for Never<Count> {
    const NAME: &'static str = "number or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

impl Kind for Never<Bytes> {
    const NAME: &'static str = "size or \"never\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("never", value).map(Never)
    }

    fn show(&self) -> String {
        shown_or("never", self.0.as_ref())
    }
}

/// How long something stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forever(pub(crate) Option<Duration>);

impl Kind for Forever {
    const NAME: &'static str = "duration or \"forever\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("forever", value).map(Forever)
    }

    fn show(&self) -> String {
        shown_or("forever", self.0.as_ref())
    }
}

/// How many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlimited(pub(crate) Option<Count>);

impl Kind for Unlimited {
    const NAME: &'static str = "number or \"unlimited\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("unlimited", value).map(Unlimited)
    }

    fn show(&self) -> String {
        shown_or("unlimited", self.0.as_ref())
    }
}

/// A number that follows from other settings unless it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Auto(pub(crate) Option<Count>);

impl Kind for Auto {
    const NAME: &'static str = "number or \"auto\"";

    fn read(value: &Value) -> Result<Self, String> {
        absent_or("auto", value).map(Auto)
    }

    fn show(&self) -> String {
        shown_or("auto", self.0.as_ref())
    }
}

/// Queues to serve, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queues(pub(crate) Vec<QueueSelector>);

impl Kind for Queues {
    const NAME: &'static str = "list of queues";

    fn read(value: &Value) -> Result<Self, String> {
        let names = texts(value, ',')?;
        if names.is_empty() {
            return Err("it names no queue; \"*\" serves all".to_owned());
        }
        let names = names.iter().map(|name| name.trim().parse());
        let names: crate::error::Result<_> = names.collect();
        names.map(Queues).map_err(|error| error.to_string())
    }

    fn show(&self) -> String {
        list(self.0.iter().map(ToString::to_string))
    }
}

/// A program and its arguments; empty when none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program(pub(crate) Vec<String>);

impl Kind for Program {
    const NAME: &'static str = "list of texts";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(path) => Ok(Program(vec![path.clone()])),
            _ => texts(value, ' ').map(Program),
        }
    }

    fn show(&self) -> String {
        list(self.0.iter().cloned())
    }
}

/// A list, or its items in one text.
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

/// A path; empty when there is none.
impl Kind for PathBuf {
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

/// The address of a database, which may hold a password; empty when unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) String);

impl Kind for Address {
    const NAME: &'static str = "address";

    fn read(value: &Value) -> Result<Self, String> {
        match value {
            Value::Text(text) | Value::Untyped(text) => match text.trim() {
                "" => Ok(Address(String::new())),
                text => match crate::db::Database::open(text) {
                    Ok(_) => Ok(Address(text.to_owned())),
                    Err(error) => Err(error.to_string()),
                },
            },
            // What it was is not shown: it may hold a password.
            _ => Err("it is not an address in quotes".to_owned()),
        }
    }

    fn show(&self) -> String {
        quoted(&crate::db::without_secrets(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        fn back<T: Kind + PartialEq + std::fmt::Debug>(value: T) {
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
        back(Count(7));
        back(true);
        back(Bytes(3 << 20));
        back(Never::<Bytes>(None));
        back(Never(Some(Count(3))));
        back(Never(Some(Interval(Duration::from_secs(6 * 3600)))));
        back(Forever(None));
        back(Unlimited(Some(Count(9))));
        back(Auto(None));
        back(Number(0));
        back(chrono_tz::Europe::Berlin);
        back(Queues(vec!["mail".parse().unwrap(), "a*".parse().unwrap()]));
        back(Program(vec!["a \"b\"".to_owned(), "c".to_owned()]));
        back(PathBuf::from("/run/a b.pid"));
    }

    #[test]
    fn a_password_is_not_shown() {
        let address = Address("postgres://me:hunter2@db/app".to_owned());
        assert_eq!(address.show(), "\"postgres://db/app\"");
    }
}
