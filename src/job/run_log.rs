//! The lines that a job logs about itself, until a heartbeat or its end stores them.

use crate::db::model::claim::Fence;
use crate::db::table::job_logs::{LogLine, LoggedRun, to_column};
use crate::job::error::JobError;
use log::Level;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The most lines of a run that are kept.
const MOST_LINES: usize = 1_000;

/// The most bytes of text in the kept lines of a run.
const MOST_BYTES: usize = 64 * 1024;

/// The longest line, in bytes.
const LONGEST: usize = 4 * 1024;

/// The log lines of a run.
#[derive(Debug, Default)]
pub(crate) struct RunLog {
    /// Set with the first line. Most jobs log nothing, and this is all that is read of them.
    is_used: AtomicBool,
    buffer: Mutex<LogBuffer>,
}

#[derive(Debug, Default)]
struct LogBuffer {
    lines: VecDeque<LogLine>,
    /// Of the lines that are kept.
    bytes: usize,
    /// The number of lines that were logged, and of those that have been stored or dropped.
    total: i64,
    stored: i64,
}

impl RunLog {
    fn buffer(&self) -> MutexGuard<'_, LogBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds each line of a text. The oldest lines are dropped for it, if there are too many.
    pub(crate) fn add(&self, after: Duration, level: Level, text: &str) {
        self.is_used.store(true, Ordering::Relaxed);
        let mut buffer = self.buffer();
        for line in text.lines() {
            let line = LogLine {
                after,
                level,
                text: line.to_owned(),
            };
            buffer.bytes += line.text.len();
            buffer.total += 1;
            buffer.lines.push_back(line);
            while buffer.lines.len() > MOST_LINES || buffer.bytes > MOST_BYTES {
                let Some(oldest) = buffer.lines.pop_front() else {
                    break;
                };
                buffer.bytes -= oldest.text.len();
            }
        }
    }

    /// Returns true if there are lines that are not stored yet.
    pub(crate) fn has_news(&self) -> bool {
        self.is_used.load(Ordering::Relaxed) && {
            let buffer = self.buffer();
            buffer.stored < buffer.total
        }
    }

    /// Returns what is to be stored, `ran` after the start of the run. `None` if nothing is new.
    pub(crate) fn news(
        &self,
        fence: Fence,
        job_id: i64,
        attempts: i32,
        ran: Duration,
    ) -> Option<LoggedRun> {
        if !self.has_news() {
            return None;
        }
        let buffer = self.buffer();
        Some(LoggedRun {
            fence,
            job_id,
            attempt: attempts.max(0).saturating_add(1),
            ran,
            lines: to_column(buffer.lines.iter()),
            total: buffer.total,
            is_first: buffer.stored == 0,
        })
    }

    /// Marks these lines as stored.
    pub(crate) fn carried(&self, stored: &LoggedRun) {
        let mut buffer = self.buffer();
        buffer.stored = buffer.stored.max(stored.total);
    }

    /// Returns the lines that are kept.
    pub(crate) fn lines(&self) -> Vec<LogLine> {
        self.buffer().lines.iter().cloned().collect()
    }
}

/// Replaces control characters, with which a text could move the cursor of a terminal, or which a
/// database refuses, and cuts long lines.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut lines = text.lines();
    let mut add = |line: &str| {
        let start = clean.len();
        for letter in line.chars() {
            let letter = match letter {
                '\t' => ' ',
                letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
                letter => letter,
            };
            if clean.len() - start + letter.len_utf8() > LONGEST {
                clean.push('…');
                break;
            }
            clean.push(letter);
        }
        clean.push('\n');
    };
    // An empty text is a line, too.
    add(lines.next().unwrap_or_default());
    lines.for_each(add);
    clean.pop();
    if clean.is_empty() {
        clean.push('\n');
    }
    clean
}

// --- Hides the secret fields of arguments, and their values where a text repeats them ---

/// The text that replaces a secret.
pub const HIDDEN: &str = "[hidden]";

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
pub struct SecretTexts(Vec<String>);

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

    fn add(log: &RunLog, text: &str) {
        log.add(Duration::ZERO, Level::Info, &clean(text));
    }

    #[test]
    fn hostile_texts_are_made_printable() {
        assert_eq!(clean("a\u{1b}[31mb\0c\td"), "a\u{FFFD}[31mb\u{FFFD}c d");
        assert_eq!(clean("one\r\ntwo\n\nfour\n"), "one\ntwo\n\nfour");
        assert_eq!(clean(""), "\n");
        assert_eq!(clean("\u{9b}2J"), "\u{FFFD}2J");
        let long = clean(&"ä".repeat(LONGEST));
        assert_eq!(long.len(), LONGEST + '…'.len_utf8());
    }

    #[test]
    fn the_newest_lines_are_kept() {
        let log = RunLog::default();
        assert!(!log.has_news());
        for number in 0..MOST_LINES + 5 {
            add(&log, &number.to_string());
        }
        assert_eq!(log.lines().len(), MOST_LINES);
        assert_eq!(log.lines()[0].text, "5");
        add(&log, "");
        assert_eq!(log.lines().last().unwrap().text, "");
        for _ in 0..20 {
            add(&log, &"x".repeat(LONGEST));
        }
        let bytes: usize = log.lines().iter().map(|line| line.text.len()).sum();
        assert_eq!(bytes, MOST_BYTES);
        assert_eq!(log.buffer().bytes, bytes);
    }

    #[test]
    fn only_new_lines_are_news() {
        let log = RunLog::default();
        let fence = Fence {
            process_id: 1,
            claim_id: 2,
        };
        let news = || log.news(fence, 3, 0, Duration::ZERO);
        assert!(news().is_none());
        add(&log, "a\nb");
        let first = news().unwrap();
        assert_eq!((first.total, first.is_first), (2, true));
        add(&log, "c");
        log.carried(&first);
        let second = news().unwrap();
        assert_eq!((second.total, second.is_first), (3, false));
        log.carried(&second);
        log.carried(&first);
        assert!(news().is_none());
    }

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
