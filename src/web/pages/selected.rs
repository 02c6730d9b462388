//! A stored selection of jobs, in words.

use crate::admin::jobs::Jobs;
use serde_json::Value;

/// Returns each condition with its name; `None` if it is not a selection that this version knows.
pub(crate) fn conditions(filter: &Value) -> Option<Vec<(String, String)>> {
    let jobs: Jobs = serde_json::from_value(filter.clone()).ok()?;
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in jobs.to_pairs() {
        match all.iter_mut().find(|(other, _)| *other == name) {
            Some((_, values)) => values.push(value),
            None => all.push((name, vec![value])),
        }
    }
    let words = all.into_iter().map(|(name, values)| match &*name {
        "ids" if values.len() > 5 => ("jobs".to_owned(), format!("{} by their ids", values.len())),
        "ids" => ("jobs".to_owned(), values.join(", ")),
        _ => (name.replace('_', " "), values.join(", ")),
    });
    Some(words.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::id::JobId;

    #[test]
    fn values_of_one_name_are_together() {
        let jobs = Jobs::waiting().class("mail").ids([JobId(1), JobId(2)]);
        let stored = serde_json::to_value(&jobs).unwrap();
        let words = conditions(&stored).unwrap();
        let word = |name: &str| {
            let found = words.iter().find(|(other, _)| other == name);
            found.map(|(_, value)| value.clone())
        };
        assert_eq!(word("state").unwrap().split(", ").count(), 3);
        assert_eq!(word("class").unwrap(), "mail");
        assert_eq!(word("jobs").unwrap(), "1, 2");
        assert_eq!(conditions(&Value::from("x")), None);
    }
}
