//! `[recurring.KEY]`: the recurring tasks of a configuration.

use crate::config::amounts::{DURATION, WHOLE_NUMBER};
use crate::config::document::{DocumentEntry, DocumentTable, Origin, suggestion};
use crate::config::reader::Reader;
use crate::config::value::{TABLE, TIME_ZONE, expected, quoted};
use crate::error::{Error, Result};
use crate::job::registry::Registry;
use crate::queue::check_name;
use crate::recurring::schedule::Schedule;
use crate::recurring::settings::RecurringSettings;
use crate::recurring::task::RecurringTask;
use crate::recurring::time_zone::Zone;
use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use toml::Value;

/// The settings of a task, in the order in which they are shown.
const NAMES: [&str; 18] = [
    "class",
    "arguments",
    "schedule",
    "time_zone",
    "queue",
    "priority",
    "ahead_by",
    "behind_by",
    "description",
    "missed",
    "overlap",
    "jitter",
    "from",
    "until",
    "max_attempts",
    "delivery",
    "expires_in",
    "retry_for",
];

/// A task and where it is declared.
#[derive(Debug, Clone)]
pub(crate) struct DeclaredTask {
    pub(crate) task: RecurringTask,
    pub(crate) origin: Origin,
    /// As in the file; `None` if the code declared the task.
    pub(crate) settings: Option<RecurringSettings>,
    /// The place of each of its settings.
    origins: BTreeMap<&'static str, Origin>,
}

/// The presence of other programs that perform jobs, and may have more classes registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherPrograms {
    None,
    Perform,
}

impl OtherPrograms {
    pub(crate) fn if_any(any: bool) -> Self {
        if any {
            OtherPrograms::Perform
        } else {
            OtherPrograms::None
        }
    }
}

/// All tasks of the file, by key.
pub(crate) fn read_all(r: &mut Reader) -> Vec<DeclaredTask> {
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
    entries: BTreeMap<String, DocumentEntry>,
    origins: BTreeMap<&'static str, Origin>,
    is_wrong: bool,
}

impl Fields {
    fn of(key: String, table: DocumentTable) -> Self {
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

    /// Returns `None` if the task is invalid, which was reported.
    fn read(mut self, r: &mut Reader) -> Option<DeclaredTask> {
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
        // Checks that its jobs could be enqueued.
        match task.and_then(|task| task.definition(None, Zone::UTC).map(|_| task)) {
            Ok(task) => Some(DeclaredTask {
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

    /// Reads the settings; invalid ones get their defaults.
    fn settings(&mut self, r: &mut Reader) -> RecurringSettings {
        let class = self.required(r, "class");
        let class = class.and_then(|name| self.checked(r, "class", name));
        let queue = self.field(r, "queue", text);
        let (schedule, time_zone) = self.times(r);
        let missed = r#""latest", "skip" or { all_within = "3 days" }, for example"#;
        let missed = self.field(r, "missed", |entry| one_of(entry, missed));
        let overlap = r#""allow", "skip" or "queue_one""#;
        let overlap = self.field(r, "overlap", |entry| one_of(entry, overlap));
        let delivery = r#""at_least_once", "at_most_once" or "after_known_outcome""#;
        let max_attempts = self.field(r, "max_attempts", WHOLE_NUMBER.read);
        let priority = self.field(r, "priority", priority);
        let ahead_by = self.field(r, "ahead_by", DURATION.read);
        let behind_by = self.field(r, "behind_by", DURATION.read);
        self.at_most_one(r, &["priority", "ahead_by", "behind_by"]);
        RecurringSettings {
            class: class.unwrap_or_default(),
            arguments: self.field(r, "arguments", |entry| json(&entry.value)),
            schedule,
            time_zone: time_zone.map(|zone| zone.name().to_owned()),
            queue: queue.and_then(|name| self.checked(r, "queue", name)),
            priority,
            ahead_by,
            behind_by,
            description: self.field(r, "description", text),
            missed: missed.unwrap_or_default(),
            overlap: overlap.unwrap_or_default(),
            jitter: self.field(r, "jitter", DURATION.read),
            from: self.field(r, "from", time),
            until: self.field(r, "until", time),
            max_attempts,
            delivery: self.field(r, "delivery", |entry| one_of(entry, delivery)),
            expires_in: self.field(r, "expires_in", DURATION.read),
            retry_for: self.field(r, "retry_for", DURATION.read),
        }
    }

    /// Reads the schedule and its time zone.
    fn times(&mut self, r: &mut Reader) -> (String, Option<Zone>) {
        let text = self.required(r, "schedule");
        let schedule = text.as_deref().and_then(|text| self.schedule(r, text));
        let zone = self.field(r, "time_zone", TIME_ZONE.read);
        let own = schedule.as_ref().and_then(Schedule::time_zone);
        if let Some((own, zone)) = own.zip(zone)
            && own != zone.name()
        {
            let message = "`schedule` names another time zone; remove one of them";
            self.wrong(r, "time_zone", message.to_owned());
        }
        (text.unwrap_or_default(), zone)
    }

    fn field<T>(
        &mut self,
        r: &mut Reader,
        name: &'static str,
        read: impl FnOnce(&DocumentEntry) -> Result<T, String>,
    ) -> Option<T> {
        let entry = self.entries.remove(name)?;
        self.origins.insert(name, entry.origin.clone());
        match read(&entry) {
            Ok(value) => Some(value),
            Err(message) => {
                self.wrong(r, name, message);
                None
            }
        }
    }

    /// Refuses settings that exclude each other.
    fn at_most_one(&mut self, r: &mut Reader, names: &[&'static str]) {
        let mut set = names.iter().filter(|name| self.origins.contains_key(*name));
        if let (Some(one), Some(other)) = (set.next(), set.next()) {
            let message = format!("`{one}` is set too; remove one of them");
            self.wrong(r, other, message);
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

    /// Checks a name.
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

impl DeclaredTask {
    /// Returns a task that the code declares.
    pub(crate) fn by_code(task: RecurringTask) -> Self {
        DeclaredTask {
            task,
            origin: Origin::Default,
            settings: None,
            origins: BTreeMap::new(),
        }
    }

    /// Returns the task with the defaults of its type, if the class is registered.
    ///
    /// The error contains the place and the problem.
    pub(crate) fn knowing(
        &self,
        registry: &Registry,
        others: OtherPrograms,
    ) -> Result<Self, (Origin, String)> {
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
            return match others {
                OtherPrograms::None => wrong("class", message()),
                OtherPrograms::Perform => Ok(self.clone()),
            };
        }
        let task = settings.task_of(key, registry).and_then(|task| {
            task.definition(None, Zone::UTC)?;
            Ok(task.declared_at(&self.origin))
        });
        match task {
            Ok(task) => Ok(DeclaredTask {
                task,
                ..self.clone()
            }),
            Err(error) => wrong("arguments", reason(error)),
        }
    }

    /// Returns its settings as written in the file, with their places.
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

/// Returns the reason of an error about a job, without "cannot enqueue".
fn reason(error: Error) -> String {
    match error {
        Error::InvalidJob { reason, .. } | Error::RecurringTask { reason, .. } => reason,
        error => error.to_string(),
    }
}

// --- Values of recurring tasks in the configuration ---

pub(crate) fn text(entry: &DocumentEntry) -> Result<String, String> {
    entry.text("a text in quotes").map(str::to_owned)
}

pub(crate) fn time(entry: &DocumentEntry) -> Result<DateTime<Utc>, String> {
    let what = "a time with its date and zone in quotes, such as \"2026-12-24T18:00:00+01:00\"";
    let time = entry.text(what)?.trim().parse();
    time.or_else(|_| expected(what, &entry.value))
}

pub(crate) fn priority(entry: &DocumentEntry) -> Result<i32, String> {
    let what = "a whole number between -2147483648 and 2147483647";
    let number = entry.value.as_integer();
    let number = number.and_then(|number| i32::try_from(number).ok());
    number.map_or_else(|| expected(what, &entry.value), Ok)
}

/// Reads a word, or a table with one entry.
pub(crate) fn one_of<T: DeserializeOwned>(entry: &DocumentEntry, what: &str) -> Result<T, String> {
    serde_json::from_value(json(&entry.value)?).or_else(|error| match &entry.value {
        Value::Table(_) => Err(format!("{error}; it may be {what}")),
        value => expected(what, value),
    })
}

/// Converts to JSON, which has no dates, and no number that is infinite.
pub(crate) fn json(value: &Value) -> Result<serde_json::Value, String> {
    use serde_json::{Number, Value as Json};
    Ok(match value {
        Value::String(text) => Json::String(text.clone()),
        Value::Boolean(value) => Json::Bool(*value),
        Value::Integer(number) => Json::Number((*number).into()),
        Value::Float(number) => match Number::from_f64(*number) {
            Some(number) => Json::Number(number),
            None => return expected("a number in JSON, which the arguments become", value),
        },
        Value::Array(items) => Json::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        Value::Table(table) => {
            let fields = table.iter();
            let fields = fields.map(|(name, value)| Ok((name.clone(), json(value)?)));
            Json::Object(fields.collect::<Result<_, String>>()?)
        }
        Value::Datetime(_) => return expected("a value in JSON; write it in quotes", value),
    })
}

/// Writes JSON as TOML, on one line.
pub(crate) fn inline(json: &serde_json::Value) -> String {
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

/// Writes a key, in quotes if TOML needs them.
pub(crate) fn name_of(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}
