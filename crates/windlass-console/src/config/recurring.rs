//! `[recurring.KEY]`: the recurring tasks of a configuration.

use crate::config::amounts::{DURATION, WHOLE_NUMBER};
use crate::config::document::{DocumentEntry, DocumentTable, Origin, suggestion};
use crate::config::reader::Reader;
use crate::config::value::{TABLE, TIME_ZONE, expected, quoted};
use serde_json::{Map, Number, Value as Json, json};
use std::collections::BTreeMap;
use toml::Value;
use windlass::internal::clock::in_units;
use windlass::internal::queue::check_name;
use windlass::internal::recurring::settings::NAMES;
use windlass::internal::recurring::time_zone::Zone;
use windlass::recurring::{RecurringSettings, Schedule};
use windlass::{Error, RecurringTask, Registry, Result};

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
        .filter_map(|(key, table)| TaskTable::read(r, key, table))
        .collect()
}

/// The table of a task while it is read.
struct TaskTable {
    key: String,
    origin: Origin,
    /// The settings whose values are possible, as JSON.
    fields: Map<String, Json>,
    origins: BTreeMap<&'static str, Origin>,
    is_wrong: bool,
}

impl TaskTable {
    /// Returns `None` if the task is invalid, which was reported.
    fn read(r: &mut Reader, key: String, table: DocumentTable) -> Option<DeclaredTask> {
        let mut own = TaskTable {
            key,
            origin: table.origin,
            fields: Map::new(),
            origins: BTreeMap::new(),
            is_wrong: false,
        };
        if let Err(error) = check_name(&own.key, "key of a recurring task") {
            own.report(r, None, error.to_string());
        }
        for (name, entry) in table.entries {
            own.add(r, &name, entry);
        }
        own.check(r);
        if own.is_wrong {
            return None;
        }
        let fields = std::mem::take(&mut own.fields);
        let settings = serde_json::from_value::<RecurringSettings>(fields.into());
        let settings = settings.map_err(|error| Error::Settings(error.to_string()));
        let declared = settings.and_then(|settings| {
            let task = settings.task(&own.key)?;
            // Checks that its jobs could be enqueued.
            task.definition(None, Zone::UTC)?;
            Ok((task, settings))
        });
        match declared {
            Ok((task, settings)) => Some(DeclaredTask {
                task: task.declared_at(&own.origin),
                origin: own.origin,
                settings: Some(settings),
                origins: own.origins,
            }),
            Err(error) => {
                let message = format!("{}: {}", own.name(), reason(error));
                own.report(r, None, message);
                None
            }
        }
    }

    /// `recurring.cleanup`
    fn name(&self) -> String {
        format!("{TABLE}.{}", name_of(&self.key))
    }

    /// Reads a setting.
    fn add(&mut self, r: &mut Reader, name: &str, entry: DocumentEntry) {
        let Some(name) = NAMES.into_iter().find(|known| *known == name) else {
            let known = match name {
                "args" => "; did you mean `arguments`?".to_owned(),
                name => suggestion(name, NAMES.into_iter()),
            };
            let message = format!("{} has no setting `{name}`{known}", self.name());
            r.problem(&entry.origin, message);
            self.is_wrong = true;
            return;
        };
        self.origins.insert(name, entry.origin.clone());
        match setting(name, &entry) {
            Ok(value) => drop(self.fields.insert(name.to_owned(), value)),
            Err(message) => self.wrong(r, name, message),
        }
    }

    /// Checks the settings that serde takes as they are, and those that exclude each other.
    fn check(&mut self, r: &mut Reader) {
        for name in ["class", "schedule"] {
            if !self.origins.contains_key(name) {
                let message = format!("{} has no `{name}`", self.name());
                self.report(r, None, message);
            }
        }
        let text = |name: &str| self.fields.get(name)?.as_str().map(str::to_owned);
        let (schedule, zone) = (text("schedule"), text("time_zone"));
        for (name, value) in [("class", text("class")), ("queue", text("queue"))] {
            if let Some(Err(error)) = value.map(|value| check_name(&value, name)) {
                self.wrong(r, name, error.to_string());
            }
        }
        match schedule.map(|text| text.parse::<Schedule>()) {
            Some(Ok(schedule)) => {
                let own = schedule.time_zone();
                if own.is_some_and(|own| zone.is_some_and(|zone| own != zone)) {
                    let message = "`schedule` names another time zone; remove one of them";
                    self.wrong(r, "time_zone", message.to_owned());
                }
            }
            Some(Err(error)) => self.wrong(r, "schedule", error.to_string()),
            None => {}
        }
        let priorities = ["priority", "ahead_by", "behind_by"].into_iter();
        let mut set = priorities.filter(|name| self.origins.contains_key(name));
        if let (Some(one), Some(other)) = (set.next(), set.next()) {
            self.wrong(r, other, format!("`{one}` is set too; remove one of them"));
        }
    }

    fn wrong(&mut self, r: &mut Reader, name: &'static str, message: String) {
        let message = format!("{}.{name}: {message}", self.name());
        self.report(r, Some(name), message);
    }

    /// Reports a problem of a setting, or of the whole task.
    fn report(&mut self, r: &mut Reader, name: Option<&str>, message: String) {
        let origin = name.and_then(|name| self.origins.get(name));
        r.problem(origin.unwrap_or(&self.origin), message);
        self.is_wrong = true;
    }
}

/// Returns the value of a setting as JSON, if the settings of a task can have it.
fn setting(name: &'static str, entry: &DocumentEntry) -> Result<Json, String> {
    let value = &entry.value;
    let what = match name {
        "arguments" => return json(value),
        "time_zone" => return (TIME_ZONE.read)(entry).map(|zone| zone.name().into()),
        "max_attempts" => return (WHOLE_NUMBER.read)(entry).map(Json::from),
        "ahead_by" | "behind_by" | "jitter" | "expires_in" | "retry_for" => {
            return (DURATION.read)(entry).map(|time| in_units(time).into());
        }
        "from" | "until" => {
            "a time with its date and zone in quotes, such as \"2026-12-24T18:00:00+01:00\""
        }
        "priority" => "a whole number between -2147483648 and 2147483647",
        "missed" => r#""latest", "skip" or { all_within = "3 days" }, for example"#,
        "overlap" => r#""allow", "skip" or "queue_one""#,
        "delivery" => r#""at_least_once", "at_most_once" or "after_known_outcome""#,
        _ => "a text in quotes",
    };
    let json = json(value).or_else(|_| expected(what, value))?;
    let alone = json!({ "class": "", "schedule": "", name: json });
    match serde_json::from_value::<RecurringSettings>(alone) {
        Ok(_) => Ok(json),
        // A word, or a table with one entry.
        Err(error) if json.is_object() && what.starts_with('"') => {
            Err(format!("{error}; it may be {what}"))
        }
        Err(_) => expected(what, value),
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

/// Converts to JSON, which has no dates, and no number that is infinite.
fn json(value: &Value) -> Result<Json, String> {
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
fn inline(json: &Json) -> String {
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
