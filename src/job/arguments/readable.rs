//! Refuses what no worker could read again, where the caller can still correct it.

use crate::db::model::new_row::NewRow;
use crate::error::{Error, Result};
use crate::job::arguments::envelope::{self, too_large};
use crate::job::arguments::finite::{self, joined};
use crate::job::arguments::{MAX_DEPTH, decode, has_escaped_nul, is_too_deep};
use crate::job::bounds::{MAX_ARGUMENTS, beyond_maximum};
use crate::job::class::Job;
use crate::job::extras::PublicAccess;
use crate::job::new_job::NewJob;
use crate::job::run_log;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::Serialize;
use std::fmt;

/// Returns the arguments of a job as JSON, from which `decode` reads them again. Those of a shape that it
/// has read before are taken as readable.
pub(crate) fn written<A: Serialize>(
    class: &str,
    arguments: &A,
    hidden: &[&str],
    decode: impl FnOnce(&str) -> serde_json::Result<A>,
) -> Result<String> {
    let refused = |reason| Error::InvalidJob {
        class: class.to_owned(),
        reason,
    };
    let text = to_json(arguments)
        .map_err(|reason| refused(format!("its arguments cannot be written as JSON: {reason}")))?;
    let shape = envelope::shape_of::<A>(&text);
    if envelope::was_read(shape) {
        return Ok(text);
    }
    match decode(&text) {
        Ok(_) => {
            envelope::note_read(shape);
            Ok(text)
        }
        // The bounds have an error of their own.
        Err(_) if is_too_deep(&text) => Ok(text),
        Err(error) => {
            let reason = run_log::hide_in_text(error.to_string(), &text, hidden);
            Err(refused(format!(
                "its arguments could not be read again{}: {reason}; what its type writes, it must read",
                at(&text, &error)
            )))
        }
    }
}

/// Returns a value as JSON. A float that JSON has no number for is an error that names its field.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> std::result::Result<String, String> {
    let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
    match lost_float(value, &text) {
        Some(problem) => Err(problem),
        None => Ok(text),
    }
}

/// Returns what to say of a float of this value that its JSON text does not have.
pub(crate) fn lost_float<T: Serialize + ?Sized>(value: &T, text: &str) -> Option<String> {
    // Such a float was written as null. Most texts have none.
    if !text.contains("null") {
        return None;
    }
    let (path, float) = finite::find(value)?;
    let of = match path.as_str() {
        "" => String::new(),
        _ => format!("`{path}` is "),
    };
    Some(format!(
        "{of}{float}, for which JSON has no number; pass `None`, or a text"
    ))
}

/// Returns why no worker can read this text of a caller.
pub(crate) fn problem_of(text: &str) -> Option<String> {
    if let Err(error) = serde_json::from_str::<Readable>(text) {
        // The text itself may be a secret, so it is not quoted.
        let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
        return Some(match is_json {
            true => format!(
                "its arguments could not be read again{}: {error}",
                at(text, &error)
            ),
            false => format!("its arguments are not JSON: {error}"),
        });
    }
    let number = too_large(text)?;
    let path = path_of(text, number.as_ptr() as usize - text.as_ptr() as usize + 1);
    let of = if path.is_empty() {
        "they are".to_owned()
    } else {
        format!("`{path}` is")
    };
    Some(format!(
        "its arguments could not be read again: {of} an integer of more than 64 bits; pass it as a text"
    ))
}

/// Returns `, at the field` of an error, if it is in one.
fn at(text: &str, error: &serde_json::Error) -> String {
    let before = text.split_inclusive('\n').take(error.line().max(1) - 1);
    let path = path_of(text, before.map(str::len).sum::<usize>() + error.column());
    if path.is_empty() {
        return path;
    }
    format!(", at `{path}`")
}

/// A step of a path in JSON text.
enum Step<'a> {
    Index(usize),
    Key(&'a str),
}

/// Returns the path of the value that the first `end` bytes of JSON text end with.
fn path_of(text: &str, end: usize) -> String {
    let bytes = text.as_bytes();
    let (mut steps, mut index, mut takes_key) = (Vec::new(), 0, false);
    while index < end.min(bytes.len()) {
        match bytes[index] {
            b'"' => {
                let start = index + 1;
                index = end_of_text(bytes, start);
                if takes_key && let Some(Step::Key(key)) = steps.last_mut() {
                    *key = text.get(start..index).unwrap_or_default();
                }
                takes_key = false;
            }
            b'{' => {
                steps.push(Step::Key(""));
                takes_key = true;
            }
            b'[' => steps.push(Step::Index(0)),
            b'}' | b']' => drop(steps.pop()),
            b',' => match steps.last_mut() {
                Some(Step::Index(number)) => *number += 1,
                _ => takes_key = true,
            },
            _ => {}
        }
        index += 1;
    }
    let names = steps.iter().rev().map(|step| match step {
        Step::Index(number) => format!("[{number}]"),
        Step::Key(key) => (*key).to_owned(),
    });
    names.fold(String::new(), |rest, name| joined(&name, &rest))
}

/// Returns the index of the quote that ends a text, or the end.
fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let mut index = start;
    while index < bytes.len() && bytes[index] != b'"' {
        index += if bytes[index] == b'\\' { 2 } else { 1 };
    }
    index
}

/// Any JSON, each part of which was looked at. `IgnoredAny` skips what it cannot read.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Readable)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Readable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Self, A::Error> {
        while items.next_element::<Readable>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<Self, A::Error> {
        while fields.next_entry::<Readable, Readable>()?.is_some() {}
        Ok(self)
    }
}

// --- The bounds of what a job carries ---

impl NewJob {
    /// Rejects arguments, tags and metadata that a database would reject or a worker could not read.
    pub(crate) fn check_arguments(&self) -> Result<()> {
        let refused = |reason: String| {
            Err(Error::InvalidJob {
                class: self.row.class_name.clone(),
                reason,
            })
        };
        let extras = self.policy.extras.as_ref();
        if let Some(problem) = extras.and_then(|extras| extras.problem()) {
            return refused(problem);
        }
        let extras = self.extras_text();
        // The enqueue looks the class up if that decides.
        if let Some(problem) = self
            .most()
            .and_then(|most| beyond_maximum(self.size(), most))
        {
            return refused(problem);
        }
        // In JSON a NUL is always escaped; text with a raw one is not JSON.
        if self.row.arguments.contains('\0') || has_escaped_nul(&self.row.arguments) {
            return refused(
                "its arguments contain a NUL character, which Postgres cannot keep; encode binary data"
                    .to_owned(),
            );
        }
        if has_escaped_nul(&extras) {
            return refused("its metadata contains a NUL character".to_owned());
        }
        if is_too_deep(&self.row.arguments) || is_too_deep(&extras) {
            return refused(format!(
                "its arguments or metadata are nested deeper than {MAX_DEPTH} arrays and objects, and could not be \
                 decoded again; store the data elsewhere and pass a reference"
            ));
        }
        if self.is_text
            && let Some(problem) = problem_of(&self.row.arguments)
        {
            return refused(problem);
        }
        Ok(())
    }

    /// Returns the maximum size, or `None` if the class decides. No worker of Windlass stores a class of Ruby.
    pub(crate) fn most(&self) -> Option<usize> {
        let is_of_ruby = self.ruby.is_some() || self.row.active_job_id.is_some();
        self.max_arguments.or(is_of_ruby.then_some(MAX_ARGUMENTS))
    }

    /// Returns the bytes of the arguments, tags and metadata.
    pub(crate) fn size(&self) -> usize {
        self.row.arguments.len() + self.extras_text().len()
    }

    /// Returns the tags and metadata as they are stored, or an empty text.
    fn extras_text(&self) -> String {
        let extras = self.policy.extras.as_ref();
        let extras = extras.filter(|extras| !extras.tags.is_empty() || !extras.meta.is_empty());
        let text = extras.and_then(|extras| serde_json::to_string(extras).ok());
        text.unwrap_or_default()
    }
}

// --- Creates jobs from the values of their types ---

impl NewJob {
    /// Creates a job with the given arguments and the defaults of its type.
    ///
    /// # Errors
    /// If the arguments cannot be serialized to JSON, or cannot be read from it again: a float is NaN
    /// or infinite, for example.
    pub fn new<J: Job>(job: &J) -> Result<Self> {
        let arguments = written(J::NAME, job, J::REDACT, decode::<J>)?;
        let (class, queue) = (J::NAME.to_owned(), J::QUEUE.to_owned());
        let mut row = NewRow::new(class, arguments, queue, J::PRIORITY);
        row.unique_id = job.unique_id();
        row.tenant = job.tenant();
        Ok(NewJob {
            row,
            policy: J::policy().with_version(J::VERSION).with_rates(job.rates()),
            concurrency: job.concurrency(),
            quota: job.quota(),
            max_arguments: Some(J::MAX_ARGUMENTS),
            is_text: false,
            access: PublicAccess {
                wants_token: false,
                shows_result: J::PUBLIC_RESULT,
            },
            ruby: None,
            follows: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_the_value_before_a_place() {
        let text = r#"{"a":{"b\"":[1,{"c":true}]},"d":2}"#;
        let path = |part: &str| path_of(text, text.find(part).unwrap() + part.len());
        assert_eq!(path("true"), r#"a.b\"[1].c"#);
        assert_eq!(path("2"), "d");
        assert_eq!(path("}]"), r#"a.b\""#);
        assert_eq!(path_of("[[0,1", 9), "[0][1]");
        assert_eq!(path_of("", 3), "");
    }

    #[test]
    fn floats_that_json_lacks_are_found_by_their_field() {
        let value = (Some(1.5), vec![None, Some(f64::NAN)]);
        let error = to_json(&value).unwrap_err();
        assert!(error.starts_with("`[1][1]` is NaN"), "{error}");
        let by_name = std::collections::BTreeMap::from([("a", (f32::INFINITY, ()))]);
        let error = to_json(&by_name).unwrap_err();
        assert!(error.starts_with("`a[0]` is inf"), "{error}");
        assert_eq!(to_json(&(1.5, None::<f64>)).unwrap(), "[1.5,null]");
        assert!(to_json(&f64::NAN).unwrap_err().starts_with("NaN, "));
    }

    #[test]
    fn texts_that_no_worker_reads_are_refused() {
        for (text, says) in [
            (r#"{"a":["\ud800"]}"#, "at `a[0]`"),
            (r#"{"a":1,"\udc00x":2}"#, "could not be read again"),
            (r#"{"a":{"b":1e999}}"#, "at `a.b`: number out of range"),
            ("{\n\"a\": 1,\n \"b\": -1e400}", "at `b`"),
            (r#"{"n":18446744073709551616}"#, "`n` is an integer of more"),
            ("[0,-9223372036854775809]", "`[1]` is an integer"),
            ("{", "are not JSON"),
        ] {
            let problem = problem_of(text).unwrap();
            assert!(problem.contains(says), "{text}: {problem}");
        }
        for text in [
            r#"{"a":"\ud83d\ude00 \\ud800","n":[18446744073709551615,1e300,-0.0,null,true]}"#,
            r#"" 18446744073709551616 ""#,
            "7",
        ] {
            assert_eq!(problem_of(text), None, "{text}");
        }
    }
}
