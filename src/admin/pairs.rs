//! A selection of jobs as the pairs of a query string.

use crate::admin::jobs::Jobs;
use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// The values that may appear more than once.
const LISTS: [&str; 3] = ["ids", "tags", "any_tag"];

/// The name of the states of the jobs.
const STATE: &str = "state";

const LIMIT: &str = "limit";

impl Jobs {
    /// Returns the selection as pairs of names and values, for a query string. They are not encoded.
    ///
    /// ```
    /// use windlass::jobs::Jobs;
    ///
    /// let failed = Jobs::failed().class("import").tagged(["eu", "vip"]);
    /// let pairs = failed.to_pairs();
    /// assert_eq!(pairs[0], ("state".into(), "failed".into()));
    /// assert_eq!(Jobs::from_pairs(pairs)?, failed);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn to_pairs(&self) -> Vec<(String, String)> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut pairs = Vec::new();
        let mut add = |name: &str, value: &Value| pairs.push((name.to_owned(), text(value)));
        for state in &self.states {
            add(STATE, &serde_json::to_value(state).unwrap_or_default());
        }
        if let Ok(Value::Object(filter)) = serde_json::to_value(&self.filter) {
            for (name, value) in &filter {
                match value {
                    Value::Array(items) => items.iter().for_each(|item| add(name, item)),
                    value => add(name, value),
                }
            }
        }
        if let Some(limit) = self.limit {
            add(LIMIT, &limit.into());
        }
        pairs
    }

    /// Returns the selection of the pairs of a query string, as [`to_pairs`](Self::to_pairs) makes
    /// them. An empty value is none. Without a state, all jobs that have not ended are selected.
    ///
    /// # Errors
    /// If a name is unknown, or a value is invalid.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let (mut states, mut filter, mut limit) = (Vec::new(), Map::new(), None);
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            match &*name {
                STATE => states.push(Value::String(value)),
                LIMIT => limit = Some(number(&name, &value)?),
                "batch" | "whole_batch" => {
                    let batch = number(&name, &value)?;
                    filter.insert(name, batch);
                }
                name if LISTS.contains(&name) => {
                    let item = match name {
                        "ids" => number(name, &value)?,
                        _ => Value::String(value),
                    };
                    let list = filter
                        .entry(name)
                        .or_insert_with(|| Value::Array(Vec::new()));
                    list.as_array_mut()
                        .into_iter()
                        .for_each(|list| list.push(item.clone()));
                }
                _ => {
                    filter.insert(name, Value::String(value));
                }
            }
        }
        let wrong = |error: serde_json::Error| {
            Error::Settings(format!("this is not a selection of jobs: {error}"))
        };
        let mut jobs = Jobs::unfinished();
        if !states.is_empty() {
            jobs.states = serde_json::from_value(Value::Array(states)).map_err(wrong)?;
        }
        jobs.filter = serde_json::from_value(Value::Object(filter)).map_err(wrong)?;
        jobs.limit = limit.and_then(|limit| limit.as_u64());
        Ok(jobs)
    }
}

fn number(name: &str, value: &str) -> Result<Value> {
    let number: i64 = value.trim().parse().map_err(|_| {
        Error::Settings(format!(
            "`{}` is not a number, as `{name}` has to be",
            value
                .chars()
                .take(80)
                .flat_map(char::escape_default)
                .collect::<String>()
        ))
    })?;
    Ok(number.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::decision::JobState;
    use crate::job::JobId;

    #[test]
    fn a_selection_comes_back_from_its_pairs() {
        let time = Some("2026-11-24T10:00:00.5Z".parse().unwrap());
        for jobs in [
            Jobs::waiting(),
            Jobs::failed().ids([JobId(7), JobId(9)]).limit(3),
            Jobs::in_state(JobState::Finished)
                .class("a&b=c")
                .queue("ä")
                .finished_between(time, None)
                .created_between(None, time),
            Jobs::failed()
                .kind("io")
                .fingerprint("00ff")
                .error_contains("50% of \"it\"")
                .unique_id("users/1")
                .arguments_contain("{")
                .failed_between(time, time)
                .tagged(["a", "b"])
                .tagged_any(["c"]),
        ] {
            assert_eq!(Jobs::from_pairs(jobs.to_pairs()).unwrap(), jobs);
            let json = serde_json::to_string(&jobs).unwrap();
            assert_eq!(serde_json::from_str::<Jobs>(&json).unwrap(), jobs);
        }
    }

    #[test]
    fn what_is_unknown_or_wrong_is_refused() {
        let of = |name: &str, value: &str| Jobs::from_pairs([(name.into(), value.into())]);
        for (name, value) in [
            ("color", "blue"),
            ("state", "gone"),
            ("ids", "x"),
            ("limit", "many"),
            ("created_from", "yesterday"),
        ] {
            assert!(of(name, value).is_err(), "{name}={value}");
        }
        assert_eq!(of("class", "").unwrap(), Jobs::unfinished());
    }
}
