//! What a job carries beside its arguments, within the column `policy`: tags, metadata, and the
//! version of its arguments.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The most tags of a job.
pub(crate) const MAX_TAGS: usize = 32;

/// The most bytes of a tag, or of the key of a value of the metadata.
pub(crate) const MAX_LABEL: usize = 100;

/// The version of arguments that name none.
pub(crate) const FIRST_VERSION: u32 = 1;

/// What a job carries beside its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Extras {
    /// Each is there once, in the order in which they were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) meta: BTreeMap<String, Value>,
    /// The version of the arguments; `None` is the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u32>,
}

/// The part of the column that holds the extras.
#[derive(Default, Deserialize)]
struct ExtrasColumn {
    #[serde(default)]
    extras: Option<Extras>,
}

impl Extras {
    /// Reads the extras from the column `policy`. What cannot be read counts as none.
    pub(crate) fn of_policy(policy: Option<&str>) -> Extras {
        let text = policy.filter(|text| text.contains("\"extras\""));
        let column = text.and_then(|text| serde_json::from_str::<ExtrasColumn>(text).ok());
        column.and_then(|column| column.extras).unwrap_or_default()
    }

    /// Returns the version of the arguments.
    pub(crate) fn arguments_version(&self) -> u32 {
        self.version.unwrap_or(FIRST_VERSION)
    }

    /// Adds a tag, unless it is there.
    pub(crate) fn add_tag(&mut self, tag: String) {
        if !self.tags.contains(&tag) {
            self.tags.push(tag);
        }
    }

    /// Adds the tags and the metadata of `other`; a key of both keeps its value.
    pub(crate) fn add(&mut self, other: &Extras) {
        for tag in &other.tags {
            self.add_tag(tag.clone());
        }
        for (key, value) in &other.meta {
            let entry = self.meta.entry(key.clone());
            entry.or_insert_with(|| value.clone());
        }
        self.version = self.version.or(other.version);
    }

    /// Returns what is wrong with the tags and metadata, if anything is.
    pub(crate) fn problem(&self) -> Option<String> {
        for (what, count) in [
            ("tags", self.tags.len()),
            ("values of metadata", self.meta.len()),
        ] {
            if count > MAX_TAGS {
                return Some(format!(
                    "it has {count} {what}, more than the {MAX_TAGS} allowed"
                ));
            }
        }
        if self.tags.iter().any(|tag| !is_label(tag)) {
            return Some(format!(
                "each of its tags must have 1 to {MAX_LABEL} bytes and no NUL"
            ));
        }
        if self.meta.keys().any(|key| !is_label(key)) {
            return Some(format!(
                "each key of its metadata must have 1 to {MAX_LABEL} bytes and no NUL"
            ));
        }
        None
    }
}

/// Returns whether a text can be a tag, or a key of the metadata.
pub(crate) fn is_label(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_LABEL && !text.contains('\0')
}

/// A change to the tags of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagChange<'t> {
    Add(&'t str),
    Remove(&'t str),
}

impl TagChange<'_> {
    /// Returns the new text of a job's column `policy`. Returns `None` if nothing changes: the tag is
    /// there already or is absent, the job has as many as it may have, or the text is not an object.
    /// Values of other versions of Windlass stay.
    pub(crate) fn apply(self, policy: Option<&str>) -> Option<String> {
        changed(policy, |extras| {
            let mut tags = match extras.remove("tags") {
                Some(Value::Array(tags)) => tags,
                _ => Vec::new(),
            };
            let before = tags.len();
            match self {
                TagChange::Add(tag) if before < MAX_TAGS && !tags.iter().any(|old| old == tag) => {
                    tags.push(tag.into());
                }
                TagChange::Add(_) => {}
                TagChange::Remove(tag) => tags.retain(|old| old != tag),
            }
            let is_changed = tags.len() != before;
            if !tags.is_empty() {
                extras.insert("tags".to_owned(), tags.into());
            }
            is_changed
        })
    }
}

/// Returns the new text of a job's column `policy`, with this version of the arguments. Returns
/// `None` if nothing changes, or if the text is not an object.
pub(crate) fn with_version(policy: Option<&str>, version: u32) -> Option<String> {
    changed(policy, |extras| {
        let before = extras.remove("version");
        let after = (version != FIRST_VERSION).then(|| Value::from(version));
        if let Some(version) = after.clone() {
            extras.insert("version".to_owned(), version);
        }
        before != after
    })
}

/// Returns the new text of a job's column `policy`, with the extras as `change` leaves them. Returns
/// `None` if that returns `false`, or if the text is not an object.
fn changed(
    policy: Option<&str>,
    change: impl FnOnce(&mut Map<String, Value>) -> bool,
) -> Option<String> {
    let mut column: Map<String, Value> = match policy {
        None => Map::new(),
        Some(text) => serde_json::from_str(text).ok()?,
    };
    let mut extras: Map<String, Value> = match column.remove("extras") {
        Some(Value::Object(extras)) => extras,
        _ => Map::new(),
    };
    if !change(&mut extras) {
        return None;
    }
    if !extras.is_empty() {
        column.insert("extras".to_owned(), extras.into());
    }
    serde_json::to_string(&column).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_added_and_removed_once() {
        let add = |tag, policy: Option<&str>| TagChange::Add(tag).apply(policy);
        let one = add("a", None).unwrap();
        assert_eq!(one, r#"{"extras":{"tags":["a"]}}"#);
        assert_eq!(add("a", Some(&one)), None);
        let other = r#"{"new":1,"extras":{"version":2,"later":[1.5]}}"#;
        let tagged = add("ä\"\\%", Some(other)).unwrap();
        assert_eq!(Extras::of_policy(Some(&tagged)).tags, ["ä\"\\%"]);
        let again = TagChange::Remove("ä\"\\%").apply(Some(&tagged)).unwrap();
        let value: Value = serde_json::from_str(&again).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(other).unwrap());
        assert_eq!(TagChange::Remove("b").apply(Some(&one)), None);
        assert_eq!(TagChange::Remove("a").apply(Some(&one)).unwrap(), "{}");
        assert_eq!(add("a", Some("no json")), None);
    }

    #[test]
    fn the_version_is_stored_unless_it_is_the_first() {
        let second = with_version(None, 2).unwrap();
        assert_eq!(second, r#"{"extras":{"version":2}}"#);
        assert_eq!(with_version(Some(&second), 2), None);
        assert_eq!(with_version(Some(&second), 1).unwrap(), "{}");
        assert_eq!(with_version(None, 1), None);
        let tagged = r#"{"extras":{"tags":["a"],"version":3},"new":1}"#;
        let first = with_version(Some(tagged), 1).unwrap();
        assert_eq!(first, r#"{"extras":{"tags":["a"]},"new":1}"#);
    }

    #[test]
    fn a_job_has_only_so_many_tags() {
        let mut policy = None;
        for number in 0..MAX_TAGS {
            policy = Some(
                TagChange::Add(&number.to_string())
                    .apply(policy.as_deref())
                    .unwrap(),
            );
        }
        assert_eq!(TagChange::Add("more").apply(policy.as_deref()), None);
        let mut extras = Extras::of_policy(policy.as_deref());
        assert_eq!(extras.problem(), None);
        extras.add_tag("more".to_owned());
        assert!(extras.problem().unwrap().contains("33 tags"));
    }

    #[test]
    fn labels_have_a_length() {
        assert!(is_label("ä") && is_label(&"x".repeat(MAX_LABEL)));
        assert!(!is_label("") && !is_label("a\0") && !is_label(&"ä".repeat(51)));
    }
}
