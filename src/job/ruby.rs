//! Jobs that Ruby performs: Active Job's envelope, and its types.

use crate::job::new_job::NewJob;
use crate::job::ruby_call::RubyCall;
use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use std::str::FromStr;

// --- Jobs of Ruby classes ---

impl NewJob {
    /// Creates a job of an Active Job class, such as `Reports::BuildJob`, which a worker of Solid Queue performs.
    ///
    /// The arguments are passed by [`arg`](Self::arg) and [`kwarg`](Self::kwarg), in the envelope that Active Job writes.
    /// Ruby's types that JSON has not are in [`ruby`](crate::ruby). The job counts for no `limits_concurrency` of its class,
    /// which only Ruby knows. Retries are those of the class, in Ruby.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::NewJob;
    /// use windlass::ruby::GlobalId;
    ///
    /// let user: GlobalId = "gid://app/User/7".parse().unwrap();
    /// NewJob::ruby("WelcomeJob") // WelcomeJob.set(queue: :mail).perform_later(user, locale: "de")
    ///     .arg(user)
    ///     .kwarg("locale", "de")
    ///     .queue("mail")
    ///     .enqueue(&mut conn)?;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// The enqueue fails if `class` is no name of a Ruby class, or an argument cannot be passed. As for
    /// [`of_class`](Self::of_class), a class is refused that a worker of Rust has registered as
    /// [internal](crate::Job::INTERNAL).
    pub fn ruby(class: impl Into<String>) -> Self {
        let class = class.into();
        let problem = (!is_constant(&class)).then(|| {
            "it is no name of a Ruby class: write it as in Ruby, such as `Reports::BuildJob`"
                .to_owned()
        });
        let call = RubyCall {
            problem,
            ..RubyCall::default()
        };
        let mut job = NewJob::of_class(class, "[]");
        job.ruby = Some(Box::new(call));
        job
    }

    /// Adds a positional argument of a [Ruby job](Self::ruby). A struct or map arrives as a hash with texts as keys; see
    /// [`SymbolKeys`](crate::ruby::SymbolKeys).
    pub fn arg(self, value: impl Serialize) -> Self {
        self.with_call(|call| {
            let value = call.passed(&format!("argument {}", call.positional.len() + 1), value);
            call.positional.push(value);
        })
    }

    /// Adds a keyword argument of a [Ruby job](Self::ruby).
    pub fn kwarg(self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        self.with_call(|call| {
            if name.is_empty() || name.starts_with("_aj_") || call.keywords.contains_key(&name) {
                call.refuse(format!(
                    "its keyword `{}` is empty, reserved by Active Job, or there twice",
                    name.escape_debug()
                ));
            }
            let value = call.passed(&format!("keyword `{}`", name.escape_debug()), value);
            call.keywords.insert(name, value);
        })
    }

    fn with_call(mut self, change: impl FnOnce(&mut RubyCall)) -> Self {
        let call = self.ruby.get_or_insert_with(|| {
            let problem = "`arg` and `kwarg` are for jobs of `NewJob::ruby`; the arguments of others are passed where they \
                 are created";
            Box::new(RubyCall {
                problem: Some(problem.to_owned()),
                ..RubyCall::default()
            })
        });
        change(call);
        self
    }
}

/// Returns true if the text is the name of a constant, with its modules.
fn is_constant(class: &str) -> bool {
    class.split("::").all(|part| {
        let mut characters = part.chars();
        characters.next().is_some_and(char::is_uppercase)
            && characters.all(|one| one.is_alphanumeric() || one == '_')
    })
}

// --- Ruby's types that JSON has not, as Active Job passes them ---

/// The `GlobalID` of a record: `gid://app/Model/id`. Ruby looks the record up before it performs the job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct GlobalId(String);

impl GlobalId {
    /// Returns the parts between `gid://` and a query.
    fn parts(&self) -> impl Iterator<Item = &str> {
        let path = self.0.split('?').next().unwrap_or_default();
        path.trim_start_matches("gid://").splitn(3, '/')
    }

    /// Returns the name of the application.
    pub fn app(&self) -> &str {
        self.parts().next().unwrap_or_default()
    }

    /// Returns the class of the record, with its modules.
    pub fn model(&self) -> &str {
        self.parts().nth(1).unwrap_or_default()
    }

    /// Returns the id of the record, as it is written in the `GlobalID`.
    pub fn id(&self) -> &str {
        self.parts().nth(2).unwrap_or_default()
    }
}

impl fmt::Display for GlobalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for GlobalId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = GlobalId(text.to_owned());
        let is_whole =
            text.starts_with("gid://") && id.parts().filter(|part| !part.is_empty()).count() == 3;
        if is_whole {
            Ok(id)
        } else {
            Err(format!(
                "`{text}` is no GlobalID; one is `gid://app/Model/id`"
            ))
        }
    }
}

impl From<GlobalId> for Value {
    fn from(id: GlobalId) -> Self {
        json!({ "_aj_globalid": id.0 })
    }
}

impl TryFrom<Value> for GlobalId {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let text = value.get("_aj_globalid").unwrap_or(&value).as_str();
        text.ok_or_else(|| format!("{value} is no GlobalID"))?
            .parse()
    }
}

/// Returns what Active Job writes for an object of this type.
fn serialized(name: &str, value: Value) -> Value {
    json!({ "_aj_serialized": format!("ActiveJob::Serializers::{name}Serializer"), "value": value })
}

/// Returns the text of an object of this type, or of what a job of Ruby arrives with.
fn text(value: &Value, name: &str) -> Result<String, String> {
    let is_marked = value
        .get("_aj_serialized")
        .is_some_and(|marker| *marker == serialized(name, Value::Null)["_aj_serialized"]);
    let inner = if is_marked {
        value.get("value")
    } else {
        Some(value)
    };
    let found = inner.and_then(Value::as_str);
    found
        .map(str::to_owned)
        .ok_or_else(|| format!("{value} is no {name}"))
}

/// A symbol, `:mail`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct Symbol(pub String);

impl From<Symbol> for Value {
    fn from(symbol: Symbol) -> Self {
        serialized("Symbol", symbol.0.into())
    }
}

impl TryFrom<Value> for Symbol {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        text(&value, "Symbol").map(Symbol)
    }
}

/// A class or module, `Reports::BuildJob`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct Module(pub String);

impl From<Module> for Value {
    fn from(module: Module) -> Self {
        serialized("Module", module.0.into())
    }
}

impl TryFrom<Value> for Module {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        text(&value, "Module").map(Module)
    }
}

/// A decimal number of any length, in its text: `12.50`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct BigDecimal(pub String);

impl From<BigDecimal> for Value {
    fn from(decimal: BigDecimal) -> Self {
        serialized("BigDecimal", decimal.0.into())
    }
}

impl TryFrom<Value> for BigDecimal {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        text(&value, "BigDecimal").map(BigDecimal)
    }
}

/// A date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct Date(pub NaiveDate);

impl From<Date> for Value {
    fn from(date: Date) -> Self {
        serialized("Date", date.0.to_string().into())
    }
}

impl TryFrom<Value> for Date {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let date = text(&value, "Date")?;
        date.parse()
            .map(Date)
            .map_err(|error| format!("`{date}` is no date: {error}"))
    }
}

/// A `Time`, to the nanosecond. Reads `DateTime` and `ActiveSupport::TimeWithZone` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct Time(pub DateTime<Utc>);

impl From<Time> for Value {
    fn from(time: Time) -> Self {
        let time = time.0.to_rfc3339_opts(SecondsFormat::Nanos, true);
        serialized("Time", time.into())
    }
}

impl TryFrom<Value> for Time {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let kinds = ["Time", "DateTime", "TimeWithZone"];
        let found = kinds.iter().find_map(|kind| text(&value, kind).ok());
        let time = found.ok_or_else(|| format!("{value} is no Time"))?;
        let parsed = DateTime::parse_from_rfc3339(&time);
        parsed
            .map(|time| Time(time.to_utc()))
            .map_err(|error| format!("`{time}` is no time: {error}"))
    }
}

/// An `ActiveSupport::Duration`, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct Duration(pub i64);

impl From<Duration> for Value {
    fn from(duration: Duration) -> Self {
        let mut value = serialized("Duration", duration.0.into());
        value["parts"] = json!([[Symbol("seconds".to_owned()), duration.0]]);
        value
    }
}

impl TryFrom<Value> for Duration {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let inner = value.get("value").unwrap_or(&value);
        inner
            .as_i64()
            .map(Duration)
            .ok_or_else(|| format!("{value} is no duration in whole seconds"))
    }
}

/// A struct or map that Ruby gets as a hash with symbols as keys, the outermost ones. Without it, the keys are texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolKeys<T>(pub T);

impl<T: Serialize> Serialize for SymbolKeys<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = serde_json::to_value(&self.0).map_err(serde::ser::Error::custom)?;
        let Value::Object(mut fields) = value else {
            return Err(serde::ser::Error::custom("only a struct or a map has keys"));
        };
        let names: Vec<Value> = fields.keys().cloned().map(Value::String).collect();
        fields.insert("_aj_symbol_keys".to_owned(), Value::Array(names));
        Map::serialize(&fields, serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    #[test]
    fn classes_are_named_as_in_ruby() {
        for good in ["A", "Reports::BuildJob", "Ärger", "V2_Job"] {
            assert!(is_constant(good), "{good}");
        }
        for bad in ["", "a", "A::", "::A", "A.b", "A b", "A::b"] {
            assert!(!is_constant(bad), "{bad}");
        }
    }

    fn both_ways<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(ruby: T, plain: Value) {
        let written = serde_json::to_value(&ruby).unwrap();
        assert_ne!(written, plain);
        assert_eq!(serde_json::from_value::<T>(written).unwrap(), ruby);
        assert_eq!(serde_json::from_value::<T>(plain).unwrap(), ruby);
    }

    #[test]
    fn each_type_reads_what_it_writes_and_what_arrives() {
        both_ways(
            "gid://app/User/7".parse::<GlobalId>().unwrap(),
            json!("gid://app/User/7"),
        );
        both_ways(Symbol("mail".to_owned()), json!("mail"));
        both_ways(Module("A::B".to_owned()), json!("A::B"));
        both_ways(BigDecimal("12.50".to_owned()), json!("12.50"));
        both_ways(Date("2026-11-25".parse().unwrap()), json!("2026-11-25"));
        let time = "2026-11-25T01:02:03.000000004Z";
        both_ways(Time(time.parse().unwrap()), json!(time));
        both_ways(Duration(300), json!(300));
    }

    #[test]
    fn what_is_none_is_refused() {
        for bad in ["", "gid://app/User", "gid://app//7", "http://app/User/7"] {
            assert!(bad.parse::<GlobalId>().is_err(), "{bad}");
        }
        assert!(serde_json::from_value::<Symbol>(json!(7)).is_err());
        assert!(serde_json::from_value::<Symbol>(serialized("Module", json!("A"))).is_err());
        assert!(serde_json::from_value::<Date>(json!("2026-13-01")).is_err());
        assert!(serde_json::from_value::<Duration>(json!(1.5)).is_err());
        assert!(serde_json::to_value(SymbolKeys(7)).is_err());
    }

    #[test]
    fn a_global_id_has_parts() {
        let id: GlobalId = "gid://my-app/Shop::Order/12?expires_in".parse().unwrap();
        assert_eq!(
            (id.app(), id.model(), id.id()),
            ("my-app", "Shop::Order", "12")
        );
    }
}
