//! Hides the secret fields of arguments, and their values where a text repeats them.

use crate::job::error::JobError;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The text that replaces a secret.
pub(crate) const HIDDEN: &str = "[hidden]";

/// Hides the fields with these names, at any depth.
///
/// A name with dots is a path: `card.number` hides `number` in `card`.
pub(crate) fn hide<S: AsRef<str>>(value: &mut Value, names: &[S]) {
    walk(value, &mut Vec::new(), names, &mut |secret| {
        *secret = Value::from(HIDDEN);
    });
}

/// The values of the secret fields of some arguments, as a text may repeat them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretTexts(Vec<String>);

impl SecretTexts {
    /// Collects the values of the fields with these names, also as a text quotes them with escapes.
    pub(crate) fn of<S: AsRef<str>>(arguments: &str, names: &[S]) -> Self {
        let Ok(mut value) = serde_json::from_str::<Value>(arguments) else {
            return SecretTexts::default();
        };
        let mut secrets = BTreeSet::new();
        walk(&mut value, &mut Vec::new(), names, &mut |secret| {
            leaves(secret, &mut secrets);
        });
        let inner = |quoted: String| quoted[1..quoted.len() - 1].to_owned();
        let quoted = |secret: &String| {
            let ways = [format!("{secret:?}"), Value::from(&**secret).to_string()];
            ways.map(inner)
        };
        // Longest first, because one may be part of another.
        let quoted = secrets.iter().flat_map(quoted);
        let mut secrets: Vec<String> = quoted.chain(secrets.clone()).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        SecretTexts(secrets)
    }

    /// Hides these values in a text.
    pub(crate) fn hide(&self, text: String) -> String {
        let hide = |text: String, secret: &String| match text.contains(secret.as_str()) {
            true => text.replace(secret.as_str(), HIDDEN),
            false => text,
        };
        self.0.iter().fold(text, hide)
    }

    /// Hides these values in the texts of a value, in the names of its fields, and where they are a value themselves.
    pub(crate) fn hide_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide(std::mem::take(text)),
            Value::Number(number) if self.0.contains(&number.to_string()) => *value = HIDDEN.into(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in(item)),
            Value::Object(fields) => {
                let hide = |(name, mut field): (String, Value)| {
                    self.hide_in(&mut field);
                    (self.hide(name), field)
                };
                *fields = std::mem::take(fields).into_iter().map(hide).collect();
            }
            _ => {}
        }
    }
}

/// Hides the values of secret fields in a text about arguments.
pub(crate) fn hide_in_text(text: String, arguments: &str, names: &[&str]) -> String {
    SecretTexts::of(arguments, names).hide(text)
}

/// The arguments of a run with the names of their secret fields: hides them in the texts that the job
/// writes. Nothing is read before there is such a text.
#[derive(Debug, Default)]
pub(crate) struct Cover<'a> {
    arguments: &'a str,
    names: &'a [&'a str],
    texts: OnceLock<SecretTexts>,
}

impl<'a> Cover<'a> {
    pub(crate) fn new(arguments: &'a str, names: &'a [&'a str]) -> Self {
        Cover {
            arguments,
            names,
            texts: OnceLock::new(),
        }
    }

    pub(crate) fn hide(&self, text: String) -> String {
        match self.names {
            [] => text,
            names => {
                let texts = || SecretTexts::of(self.arguments, names);
                self.texts.get_or_init(texts).hide(text)
            }
        }
    }

    /// Hides the secret fields in the message of an error.
    pub(crate) fn hide_in(&self, mut error: JobError) -> JobError {
        error.message = self.hide(error.message);
        error
    }
}

/// Collects the texts and numbers in `value`.
///
/// Values of one character are left out: hiding them would make a text unreadable.
fn leaves(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.chars().count() > 1 => drop(found.insert(text.clone())),
        Value::Number(number) if number.to_string().len() > 1 => {
            found.insert(number.to_string());
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| leaves(field, found)),
        _ => {}
    }
}

fn walk<S: AsRef<str>>(
    value: &mut Value,
    trail: &mut Vec<String>,
    names: &[S],
    secret: &mut impl FnMut(&mut Value),
) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                trail.push(name.clone());
                if names.iter().any(|name| ends_with(trail, name.as_ref())) {
                    secret(field);
                } else {
                    walk(field, trail, names, secret);
                }
                trail.pop();
            }
        }
        Value::Array(items) => {
            for item in items {
                walk(item, trail, names, secret);
            }
        }
        _ => {}
    }
}

fn ends_with(trail: &[String], name: &str) -> bool {
    let mut trail = trail.iter().rev();
    name.rsplit('.')
        .all(|part| trail.next().is_some_and(|field| field == part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_hidden_at_any_depth() {
        let mut value = json!({
            "token": {"a": 1}, "number": 5, "card": {"number": "4711"},
            "list": [{"token": null}, {"other": "token"}],
        });
        hide(&mut value, &["token", "card.number"]);
        let expected = json!({
            "token": HIDDEN, "number": 5, "card": {"number": HIDDEN},
            "list": [{"token": HIDDEN}, {"other": "token"}],
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn texts_do_not_repeat_what_is_hidden() {
        let arguments = r#"{"pin":"4711","pins":[47, "x"],"to":"ada"}"#;
        let text = "invalid value: string \"4711\" or 47, for ada and x".to_owned();
        assert_eq!(
            hide_in_text(text, arguments, &["pin", "pins"]),
            "invalid value: string \"[hidden]\" or [hidden], for ada and x"
        );
    }

    #[test]
    fn quoted_secrets_are_hidden() {
        let arguments = r#"{"pin":"a\"b\\c\nd"}"#;
        let error = serde_json::from_str::<std::collections::BTreeMap<String, u32>>(arguments);
        let text = error.unwrap_err().to_string();
        let hidden = hide_in_text(text, arguments, &["pin"]);
        assert!(
            hidden.starts_with("invalid type: string \"[hidden]\", expected u32"),
            "{hidden}"
        );
        let arguments = json!({"pin": "a\u{1b}1\u{301}"}).to_string();
        let text = format!("sent {arguments}");
        assert_eq!(
            hide_in_text(text, &arguments, &["pin"]),
            r#"sent {"pin":"[hidden]"}"#
        );
    }

    #[test]
    fn secrets_are_hidden_in_names_of_fields() {
        let secrets = SecretTexts::of(r#"{"pin":"4711"}"#, &["pin"]);
        let mut value = json!({"of 4711": {"4711": 1}, "a": 3});
        secrets.hide_in(&mut value);
        let expected = json!({"of [hidden]": {"[hidden]": 1}, "a": 3});
        assert_eq!(value, expected);
    }
}
