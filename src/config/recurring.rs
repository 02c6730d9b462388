//! `[recurring.KEY]`: the recurring tasks of a configuration.

use crate::config::amounts::Count;
use crate::config::document::{Entry, Origin, Table, Value};
use crate::config::names::TABLE;
use crate::config::reader::{Reader, suggestion};
use crate::config::value::{Kind as _, expected, quoted};
use crate::error::{Error, Result};
use crate::job::registry::Registry;
use crate::queue::check_name;
use crate::recurring::schedule::Schedule;
use crate::recurring::settings::RecurringSettings;
use crate::recurring::task::RecurringTask;
use chrono_tz::Tz;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// What a task may say, in the order in which it is shown.
const NAMES: [&str; 10] = [
    "class",
    "arguments",
    "schedule",
    "time_zone",
    "queue",
    "priority",
    "description",
    "missed",
    "overlap",
    "max_attempts",
];

/// A task and where it is declared.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    pub(crate) task: RecurringTask,
    pub(crate) origin: Origin,
    /// As the file says it; `None`: the code has declared it.
    pub(crate) settings: Option<RecurringSettings>,
    /// Where each of its settings stands.
    origins: BTreeMap<&'static str, Origin>,
}

/// All tasks of the file, by key.
pub(crate) fn read_all(r: &mut Reader) -> Vec<Declared> {
    let tables = r.within(TABLE);
    let tasks = tables.into_iter();
    tasks
        .filter_map(|(key, table)| Fields::of(key, table).read(r))
        .collect()
}

/// The table of a task while it is read.
struct Fields {
    key: String,
    origin: Origin,
    entries: BTreeMap<String, Entry>,
    origins: BTreeMap<&'static str, Origin>,
    is_wrong: bool,
}

impl Fields {
    fn of(key: String, table: Table) -> Self {
        Fields {
            key,
            origin: table.origin,
            entries: table.entries,
            origins: BTreeMap::new(),
            is_wrong: false,
        }
    }

    /// `recurring.cleanup`
    fn name(&self) -> String {
        format!("{TABLE}.{}", name_of(&self.key))
    }

    /// `None`: something is wrong with it, and was told.
    fn read(mut self, r: &mut Reader) -> Option<Declared> {
        if let Err(error) = check_name(&self.key, "key of a recurring task") {
            r.problem(&self.origin, error.to_string());
            self.is_wrong = true;
        }
        let settings = self.settings(r);
        self.strangers(r);
        if self.is_wrong {
            return None;
        }
        let task = settings.task(&self.key);
        // Whether its jobs could be enqueued.
        match task.and_then(|task| task.definition(None, Tz::UTC).map(|_| task)) {
            Ok(task) => Some(Declared {
                task: task.declared_at(&self.origin),
                origin: self.origin,
                settings: Some(settings),
                origins: self.origins,
            }),
            Err(error) => {
                let message = format!("{}: {}", self.name(), reason(error));
                r.problem(&self.origin, message);
                None
            }
        }
    }

    /// What is wrong has its default there.
    fn settings(&mut self, r: &mut Reader) -> RecurringSettings {
        let class = self.required(r, "class");
        let class = class.and_then(|name| self.checked(r, "class", name));
        let queue = self.field(r, "queue", text);
        let (schedule, time_zone) = self.times(r);
        let missed = r#""latest", "skip" or { all_within = "3 days" }, for example"#;
        let missed = self.field(r, "missed", |value| one_of(value, missed));
        let overlap = r#""allow", "skip" or "queue_one""#;
        let overlap = self.field(r, "overlap", |value| one_of(value, overlap));
        let max_attempts = self.field(r, "max_attempts", Count::read);
        RecurringSettings {
            class: class.unwrap_or_default(),
            arguments: self.field(r, "arguments", json),
            schedule,
            time_zone: time_zone.map(|zone| zone.name().to_owned()),
            queue: queue.and_then(|name| self.checked(r, "queue", name)),
            priority: self.field(r, "priority", priority),
            description: self.field(r, "description", text),
            missed: missed.unwrap_or_default(),
            overlap: overlap.unwrap_or_default(),
            max_attempts: max_attempts.map(|most| most.0),
        }
    }

    /// The schedule and its time zone.
    fn times(&mut self, r: &mut Reader) -> (String, Option<Tz>) {
        let text = self.required(r, "schedule");
        let schedule = text.as_deref().and_then(|text| self.schedule(r, text));
        let zone = self.field(r, "time_zone", Tz::read);
        let own = schedule.as_ref().and_then(Schedule::time_zone);
        if let Some((own, zone)) = own.zip(zone)
            && own != zone.name()
        {
            let message = "`schedule` names another time zone; leave one of them out";
            self.wrong(r, "time_zone", message.to_owned());
        }
        (text.unwrap_or_default(), zone)
    }

    fn field<T>(
        &mut self,
        r: &mut Reader,
        name: &'static str,
        read: impl FnOnce(&Value) -> std::result::Result<T, String>,
    ) -> Option<T> {
        let entry = self.entries.remove(name)?;
        self.origins.insert(name, entry.origin);
        match read(&entry.value) {
            Ok(value) => Some(value),
            Err(message) => {
                self.wrong(r, name, message);
                None
            }
        }
    }

    fn required(&mut self, r: &mut Reader, name: &'static str) -> Option<String> {
        if !self.entries.contains_key(name) {
            let message = format!("{} has no `{name}`", self.name());
            r.problem(&self.origin, message);
            self.is_wrong = true;
        }
        self.field(r, name, text)
    }

    /// A name that it may be.
    fn checked(&mut self, r: &mut Reader, name: &'static str, value: String) -> Option<String> {
        match check_name(&value, name) {
            Ok(()) => Some(value),
            Err(error) => {
                self.wrong(r, name, error.to_string());
                None
            }
        }
    }

    fn schedule(&mut self, r: &mut Reader, text: &str) -> Option<Schedule> {
        match text.parse() {
            Ok(schedule) => Some(schedule),
            Err(error) => {
                self.wrong(r, "schedule", Error::to_string(&error));
                None
            }
        }
    }

    fn wrong(&mut self, r: &mut Reader, name: &'static str, message: String) {
        let origin = self.origins.get(name).unwrap_or(&self.origin);
        let message = format!("{}.{name}: {message}", self.name());
        r.problem(origin, message);
        self.is_wrong = true;
    }

    fn strangers(&mut self, r: &mut Reader) {
        for (name, entry) in std::mem::take(&mut self.entries) {
            let known = match name.as_str() {
                "args" => "; did you mean `arguments`?".to_owned(),
                name => suggestion(name, NAMES.into_iter()),
            };
            let message = format!("{} has no setting `{name}`{known}", self.name());
            r.problem(&entry.origin, message);
            self.is_wrong = true;
        }
    }
}

impl Declared {
    /// One that the code declares.
    pub(crate) fn by_code(task: RecurringTask) -> Self {
        Declared {
            task,
            origin: Origin::Default,
            settings: None,
            origins: BTreeMap::new(),
        }
    }

    /// The same with the defaults of its type, if the registry has it. The
    /// error is where something is wrong, and what; `is_whole`: no class is
    /// performed that the registry does not have.
    pub(crate) fn knowing(
        &self,
        registry: &Registry,
        is_whole: bool,
    ) -> std::result::Result<Self, (Origin, String)> {
        let Some(settings) = &self.settings else {
            return Ok(self.clone());
        };
        let (class, key) = (settings.class.as_str(), self.task.key());
        let table = format!("{TABLE}.{}", name_of(key));
        let wrong = |name: &str, message: String| {
            let origin = self.origins.get(name).unwrap_or(&self.origin);
            let message = format!("{table}.{name}: {message}");
            Err((origin.clone(), message))
        };
        if !registry.classes().any(|known| known == class) {
            let message = || {
                let known = suggestion(class, registry.classes());
                format!("no job type of this program is called `{class}`{known}")
            };
            return match is_whole {
                true => wrong("class", message()),
                false => Ok(self.clone()),
            };
        }
        let task = settings.task_of(key, registry).and_then(|task| {
            task.definition(None, Tz::UTC)?;
            Ok(task.declared_at(&self.origin))
        });
        match task {
            Ok(task) => Ok(Declared {
                task,
                ..self.clone()
            }),
            Err(error) => wrong("arguments", reason(error)),
        }
    }

    /// Its settings as they would stand in the file, and where they stand.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String, &Origin)> {
        let json = serde_json::to_value(&self.settings).unwrap_or_default();
        let set = self.origins.iter();
        let mut lines: Vec<_> = set
            .filter_map(|(name, origin)| Some((*name, inline(json.get(*name)?), origin)))
            .collect();
        lines.sort_by_key(|(name, ..)| NAMES.iter().position(|other| other == name));
        lines
    }
}

/// What an error says of a job, without saying that it could not be enqueued.
fn reason(error: Error) -> String {
    match error {
        Error::InvalidJob { reason, .. } => reason,
        error => error.to_string(),
    }
}

fn text(value: &Value) -> std::result::Result<String, String> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        _ => expected("a text in quotes", value),
    }
}

fn priority(value: &Value) -> std::result::Result<i32, String> {
    let what = "a whole number between -2147483648 and 2147483647";
    match value {
        Value::Integer(number) => number.parse().or_else(|_| expected(what, value)),
        _ => expected(what, value),
    }
}

/// A word, or a table of one.
fn one_of<T: DeserializeOwned>(value: &Value, what: &str) -> std::result::Result<T, String> {
    serde_json::from_value(json(value)?).or_else(|error| match value {
        Value::Table(_) => Err(format!("{error}; it may be {what}")),
        _ => expected(what, value),
    })
}

/// JSON knows more of numbers than TOML, and nothing of dates.
fn json(value: &Value) -> std::result::Result<serde_json::Value, String> {
    use serde_json::{Number, Value as Json};
    Ok(match value {
        Value::Text(text) | Value::Untyped(text) => Json::String(text.clone()),
        Value::Boolean(value) => Json::Bool(*value),
        Value::Integer(number) => {
            let number = number
                .parse()
                .map(|number: i64| Json::Number(number.into()));
            number.or_else(|_| expected("between -2^63 and 2^63", value))?
        }
        Value::Float(number) => {
            let number = number.parse().ok().and_then(Number::from_f64);
            match number {
                Some(number) => Json::Number(number),
                None => return expected("a number in JSON, which the arguments become", value),
            }
        }
        Value::List(items) => Json::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        Value::Table(table) => {
            let fields = table.entries.iter();
            let fields = fields.map(|(name, entry)| Ok((name.clone(), json(&entry.value)?)));
            Json::Object(fields.collect::<Result<_, String>>()?)
        }
        Value::Other(_) => return expected("a value in JSON; write it in quotes", value),
    })
}

/// JSON as TOML would have it, on one line.
fn inline(json: &serde_json::Value) -> String {
    use serde_json::Value as Json;
    match json {
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields: Vec<String> = fields
                .map(|(name, value)| format!("{} = {}", name_of(name), inline(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// A key, in quotes where TOML wants them.
pub(crate) fn name_of(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}
