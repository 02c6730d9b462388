//! The data of a job beside its arguments, within the column `policy`: tags, metadata, and the version of its
//! arguments.

use crate::db::conn::dialect::Lossy;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::{Nullable, Text};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The most tags of a job.
pub(crate) const MAX_TAGS: usize = 32;

/// The most bytes of a tag, or of the key of a value of the metadata.
pub(crate) const MAX_LABEL: usize = 100;

/// The version of arguments that name none.
pub(crate) const FIRST_VERSION: u32 = 1;

/// The tags, the metadata and the version of the arguments of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extras {
    /// Each is there once, in the order in which they were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
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
    pub fn of_policy(policy: Option<&str>) -> Extras {
        let text = policy.filter(|text| text.contains("\"extras\""));
        let column = text.and_then(|text| serde_json::from_str::<ExtrasColumn>(text).ok());
        column.and_then(|column| column.extras).unwrap_or_default()
    }

    /// Returns the version of the arguments.
    pub fn arguments_version(&self) -> u32 {
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
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagChange<'t> {
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

// --- The part of a job's policy that the end of its run needs ---

/// The job to enqueue when another has failed permanently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FollowUpJob {
    pub(crate) class: String,
    pub(crate) queue: String,
    pub(crate) priority: i32,
}

/// The part of a job's stored policy that its end needs.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredPolicy {
    #[serde(default, deserialize_with = "readable")]
    pub(crate) on_failure: Option<FollowUpJob>,
    /// In milliseconds.
    #[serde(default, deserialize_with = "readable")]
    pub(crate) keep_result: Option<u64>,
    /// Set if it refines the delivery in the job's column.
    #[serde(default, deserialize_with = "readable")]
    delivery: Option<String>,
}

impl StoredPolicy {
    /// Returns whether the limit of at most one run holds only while the outcome of the run is unknown.
    pub(crate) fn is_after_known_outcome(&self) -> bool {
        self.delivery.as_deref() == Some("after_known_outcome")
    }
}

/// Reads one part of a policy. A part of an unknown form counts as missing, so that the other parts stay in force.
pub(crate) fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    part: D,
) -> Result<Option<T>, D::Error> {
    Value::deserialize(part).map(|part| serde_json::from_value(part).ok())
}

// --- The parents of a new job ---

/// A job or a batch that a job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Parent {
    Job(i64),
    Batch(i64),
}

impl Parent {
    pub(crate) fn job(self) -> Option<i64> {
        match self {
            Parent::Job(id) => Some(id),
            Parent::Batch(_) => None,
        }
    }

    pub(crate) fn batch(self) -> Option<i64> {
        match self {
            Parent::Batch(id) => Some(id),
            Parent::Job(_) => None,
        }
    }
}

/// On which outcome of what it waits for a job runs; see [`NewJob::when`](crate::NewJob::when).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum On {
    /// All have succeeded.
    #[default]
    Success,
    /// All have ended, and at least one of them has not succeeded.
    Failure,
    /// All have ended, whatever their outcome.
    Finish,
}

impl On {
    pub(crate) fn column(self) -> &'static str {
        match self {
            On::Success => "success",
            On::Failure => "failure",
            On::Finish => "finish",
        }
    }
}

/// The consequence for a job whose parents have another outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// It is discarded, with the reason.
    #[default]
    Discard,
    /// It is deleted.
    Drop,
    /// It waits until what failed was retried, and has succeeded.
    Wait,
    /// It runs all the same: it waits in the middle of its work.
    Join,
    /// It is deleted: it undoes the step of its parent that has the name of the edge.
    Undo,
    /// It ends with its parent, without a run: it stands for that batch in another.
    Nest,
}

impl Otherwise {
    pub(crate) fn column(self) -> &'static str {
        match self {
            Otherwise::Discard => "discard",
            Otherwise::Drop => "drop",
            Otherwise::Wait => "wait",
            Otherwise::Join => "join",
            Otherwise::Undo => "undo",
            Otherwise::Nest => "nest",
        }
    }
}

/// The parents of a new job, and the outcomes that it waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Follows {
    /// Each with the name by which the job reads its result, if it has one.
    pub(crate) parents: Vec<(Parent, Option<String>)>,
    pub(crate) on: On,
    pub(crate) otherwise: Otherwise,
}

impl Follows {
    pub(crate) fn is_default(&self) -> bool {
        self.parents.is_empty()
            && self.on == On::default()
            && self.otherwise == Otherwise::default()
    }
}

// --- The arguments of a job without the envelope that a database beside Rails puts around them ---

/// The arguments in a column, taken out of the envelope of
/// [`ActiveJobEnvelopes`](crate::schema::RailsOption::ActiveJobEnvelopes). The envelope that Ruby makes stays.
#[derive(Debug, FromSqlRow)]
pub(crate) struct BareArguments(String);

impl From<BareArguments> for String {
    fn from(arguments: BareArguments) -> Self {
        arguments.0
    }
}

impl<DB> FromSql<Text, DB> for BareArguments
where
    DB: diesel::backend::Backend,
    Lossy: FromSql<Text, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let text = String::from(Lossy::from_sql(value)?);
        let bare = bare(&text).map(str::to_owned);
        Ok(BareArguments(bare.unwrap_or(text)))
    }
}

/// The same of a column that may be NULL.
#[derive(Debug, FromSqlRow)]
pub(crate) struct MaybeBareArguments(Option<String>);

impl From<MaybeBareArguments> for Option<String> {
    fn from(arguments: MaybeBareArguments) -> Self {
        arguments.0
    }
}

impl<DB> FromSql<Nullable<Text>, DB> for MaybeBareArguments
where
    DB: diesel::backend::Backend,
    BareArguments: FromSql<Text, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let BareArguments(text) = BareArguments::from_sql(value)?;
        Ok(MaybeBareArguments(Some(text)))
    }

    fn from_nullable_sql(value: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        value.map_or(Ok(MaybeBareArguments(None)), Self::from_sql)
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    arguments: [&'a RawValue; 1],
    windlass: bool,
}

/// Returns the arguments in the envelope, if this is one. Ruby may have changed the rest of it, and written it anew.
fn bare(text: &str) -> Option<&str> {
    if !text.starts_with("{\"job_class\":") || !text.ends_with(",\"windlass\":true}") {
        return None;
    }
    let envelope: Envelope<'_> = serde_json::from_str(text).ok()?;
    let [arguments] = envelope.arguments;
    envelope.windlass.then(|| arguments.get())
}

// --- The trace context of an enqueue, as W3C Trace Context writes it ---

/// A trace context: the trace, the span that enqueued, and the flags of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traceparent {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) flags: u8,
}

/// The length of `00-<trace id>-<span id>-<flags>`.
const LENGTH: usize = 55;

/// The most bytes that a header of a later version of the standard may have.
const LONGEST: usize = 255;

impl Traceparent {
    /// Reads a header `traceparent`. Returns `None` if it does not have the form that the standard
    /// demands. What a later version of the standard adds at its end is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let [version, trace_id, span_id, flags] = fields(head)?;
        let version = hex(version, 2)?;
        let is_complete = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let read = Traceparent {
            trace_id: hex(trace_id, 32)?,
            span_id: u64::try_from(hex(span_id, 16)?).ok()?,
            flags: u8::try_from(hex(flags, 2)?).ok()?,
        };
        (is_complete && read.trace_id != 0 && read.span_id != 0).then_some(read)
    }
}

/// Returns the four fields of a header.
fn fields(head: &str) -> Option<[&str; 4]> {
    let mut fields = head.split('-');
    let four = [
        fields.next()?,
        fields.next()?,
        fields.next()?,
        fields.next()?,
    ];
    fields.next().is_none().then_some(four)
}

/// Reads a field of so many digits. The standard allows no capitals.
fn hex(field: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if field.len() != digits || !field.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(field, 16).ok()
}

/// As the header, in the version of the standard that exists.
impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Traceparent {
            trace_id,
            span_id,
            flags,
        } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
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

    #[test]
    fn only_our_own_envelope_is_taken_off() {
        let ours = r#"{"job_class":"a","arguments":[{"n": 18446744073709551616}],"executions":0,"windlass":true}"#;
        assert_eq!(bare(ours), Some(r#"{"n": 18446744073709551616}"#));
        for other in [
            r#"{"job_class":"a","arguments":[1],"executions":0}"#,
            r#"{"job_class":"a","arguments":[1,2],"windlass":true}"#,
            r#"{"windlass":true}"#,
        ] {
            assert_eq!(bare(other), None, "{other}");
        }
    }

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_header_is_read_and_written() {
        let read = Traceparent::parse(GOOD).unwrap();
        assert_eq!(read.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(read.span_id, 0xb7ad_6b71_6920_3331);
        assert_eq!((read.flags, read.to_string()), (1, GOOD.to_owned()));
        for later in [
            GOOD.replacen("00", "01", 1),
            format!("cc{}-more", &GOOD[2..]),
        ] {
            assert_eq!(Traceparent::parse(&later), Some(read), "{later}");
        }
    }

    #[test]
    fn other_texts_are_none() {
        let changed = |from: &str, to: &str| GOOD.replacen(from, to, 1);
        for text in [
            "",
            "00",
            &GOOD[1..],
            &format!("{GOOD}-more"),
            &format!("{GOOD}\n"),
            &format!(" {GOOD}"),
            &changed("00", "ff"),
            &format!("01{}more", &GOOD[2..]),
            &changed("0af7", "0AF7"),
            &changed("0af7", "+af7"),
            &changed("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &changed("b7ad6b7169203331", &"0".repeat(16)),
            &GOOD.replace('-', "_"),
            &changed("-b7ad6b7169203331", "--7ad6b7169203331"),
            &"ä".repeat(40),
            &"-".repeat(55),
            &"\0".repeat(55),
            &"0".repeat(1_000_000),
            &format!("cc{}-{}", &GOOD[2..], "a".repeat(200)),
        ] {
            assert_eq!(Traceparent::parse(text), None, "{text}");
        }
    }
}
