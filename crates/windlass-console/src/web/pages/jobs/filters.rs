//! The filters of the list of jobs: from the address, to a search, and back.

use crate::read::sql::job_search::JobSearch;
use crate::read::sql::job_window::ListPosition;
use crate::read::sql::named::{self, NamedThings};
use crate::web::http::{self, PageError, Pairs, Response};
use crate::web::request::route::Cx;
use chrono::{NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};
use windlass::internal::error::ErrorContext as _;
use windlass::jobs::JobState;
use windlass::{Conn, Result};

/// The states by which a list can be narrowed, with their names in the address.
pub(crate) const STATES: [(&str, JobState); 8] = [
    ("ready", JobState::Ready),
    ("scheduled", JobState::Scheduled),
    ("running", JobState::Claimed),
    ("blocked", JobState::Blocked),
    ("failed", JobState::Failed),
    ("finished", JobState::Finished),
    ("cancelled", JobState::Cancelled),
    ("discarded", JobState::Discarded),
];

/// The texts by which a list can be narrowed: their names in the address, and in words.
pub(crate) const TEXTS: [(&str, &str); 8] = [
    ("queue", "queue"),
    ("class", "class"),
    ("error", "error contains"),
    ("uid", "unique id"),
    ("tag", "tag"),
    ("batch", "batch"),
    ("args", "arguments contain"),
    ("group", "failures alike"),
];

/// The filters of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JobFilters {
    pub(crate) state: Option<JobState>,
    /// In the order of [`TEXTS`]; empty ones are not filters.
    texts: [String; 8],
    pub(crate) when: When,
}

/// A filter that is set, and the address without it.
#[derive(Debug, Clone)]
pub(crate) struct FilterChip {
    pub(crate) text: String,
    pub(crate) path: String,
}

impl JobFilters {
    /// Reads the filters of an address or a form.
    ///
    /// # Errors
    /// If a state is unknown, a batch is not a number, or a time is not one.
    pub(crate) fn of(pairs: &Pairs) -> Result<Self, PageError> {
        let state = match pairs.get("state") {
            None | Some("all") => None,
            Some(name) => Some(state_named(name)?),
        };
        let text = |(name, _): (&str, &str)| pairs.get(name).unwrap_or_default().trim().to_owned();
        let mut filters = JobFilters {
            state,
            texts: TEXTS.map(text),
            when: When::of(pairs)?,
        };
        let batch = filters.text("batch");
        if !batch.is_empty() && batch.parse::<i64>().is_err() {
            return Err(PageError::Invalid(
                "The id of a batch is a number.".to_owned(),
            ));
        }
        // Only these have an error.
        let with_error = [JobState::Failed, JobState::Cancelled, JobState::Discarded];
        let has_error = state.is_some_and(|state| with_error.contains(&state));
        if !filters.text("group").is_empty() || !filters.text("error").is_empty() && !has_error {
            filters.state = Some(JobState::Failed);
        }
        Ok(filters)
    }

    /// Returns the value of a text, by its name in the address.
    pub(crate) fn text(&self, name: &str) -> &str {
        let mut texts = TEXTS.iter().zip(&self.texts);
        let found = texts.find(|((other, _), _)| *other == name);
        found.map_or("", |(_, text)| text)
    }

    /// Returns the batch of the jobs.
    pub(crate) fn batch(&self) -> Option<i64> {
        self.text("batch").parse().ok()
    }

    /// Returns the name of the state in the address; empty for every state.
    pub(crate) fn state_name(&self) -> &'static str {
        self.state.map_or("", name_of)
    }

    pub(crate) fn search(&self) -> JobSearch {
        let text = |name: &str| {
            let text = self.text(name);
            (!text.is_empty()).then(|| text.to_owned())
        };
        JobSearch {
            state: self.state,
            queue: text("queue"),
            class: text("class"),
            error: text("error"),
            unique_id: text("uid"),
            tag: text("tag"),
            arguments: text("args"),
            fingerprint: text("group"),
            batch: self.batch(),
            ..JobSearch::default()
        }
    }

    /// Returns what is set, as pairs of an address. The state comes first.
    pub(crate) fn pairs(&self) -> Pairs {
        let mut pairs = Vec::new();
        if let Some(state) = self.state {
            pairs.push(("state", name_of(state).to_owned()));
        }
        for ((name, _), text) in TEXTS.iter().zip(&self.texts) {
            pairs.push((name, text.clone()));
        }
        pairs.push(("since", self.when.since.to_owned()));
        pairs.push(("from", field(self.when.from)));
        pairs.push(("to", field(self.when.to)));
        pairs.retain(|(_, value)| !value.is_empty());
        pairs.into_iter().collect()
    }

    /// Returns the path of the list with another state.
    pub(crate) fn with_state(&self, state: Option<JobState>) -> String {
        let pairs = self.pairs().without("group");
        // Only failed, cancelled and discarded jobs have an error.
        let pairs = match state {
            Some(JobState::Failed | JobState::Cancelled | JobState::Discarded) => pairs,
            _ => pairs.without("error"),
        };
        let pairs = match state {
            Some(state) => pairs.with("state", name_of(state)),
            None => pairs.without("state"),
        };
        format!("/jobs{}", pairs.to_query())
    }

    /// Returns the path of the list from another position on.
    pub(crate) fn at(&self, position: ListPosition) -> String {
        let pairs = match position {
            ListPosition::Before(i64::MAX) => self.pairs(),
            ListPosition::Before(key) => self.pairs().with("before", &key.to_string()),
            ListPosition::After(key) => self.pairs().with("after", &key.to_string()),
        };
        format!("/jobs{}", pairs.to_query())
    }

    /// Returns the filters that are set, but for the state.
    pub(crate) fn chips(&self) -> Vec<FilterChip> {
        let pairs = self.pairs();
        let without = |names: &[&str]| {
            let pairs = names
                .iter()
                .fold(pairs.clone(), |pairs, name| pairs.without(name));
            format!("/jobs{}", pairs.to_query())
        };
        let mut chips = Vec::new();
        for ((name, label), text) in TEXTS.iter().zip(&self.texts) {
            if !text.is_empty() {
                chips.push(FilterChip {
                    text: format!("{label} {text}"),
                    path: without(&[name]),
                });
            }
        }
        if !self.when.since.is_empty() {
            chips.push(FilterChip {
                text: format!("{} {}", self.moment(), self.when.label()),
                path: without(&["since"]),
            });
        }
        for (name, word, at) in [
            ("from", "from", self.when.from),
            ("to", "before", self.when.to),
        ] {
            if let Some(at) = at {
                chips.push(FilterChip {
                    text: format!(
                        "{} {word} {}",
                        self.moment(),
                        at.format("%Y-%m-%d %H:%M:%S")
                    ),
                    path: without(&[name]),
                });
            }
        }
        chips
    }

    /// Returns what the times are about, in one word.
    pub(crate) fn moment(&self) -> &'static str {
        match self.state {
            Some(JobState::Failed) => "failed",
            Some(JobState::Cancelled) => "cancelled",
            Some(JobState::Discarded) => "discarded",
            _ => "enqueued",
        }
    }

    /// Returns the same at the start of a sentence.
    pub(crate) fn moment_label(&self) -> String {
        let (first, rest) = self.moment().split_at(1);
        format!("{}{rest}", first.to_uppercase())
    }

    /// Returns whether one of the less common filters is set.
    pub(crate) fn has_more(&self) -> bool {
        let texts = ["uid", "tag", "batch", "error"];
        texts.iter().any(|name| !self.text(name).is_empty())
            || self.when.from.is_some()
            || self.when.to.is_some()
    }

    /// Returns whether nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == JobFilters::default()
    }
}

/// Returns from where the list of an address goes on.
pub(crate) fn list_position(pairs: &Pairs) -> ListPosition {
    match (pairs.number("before"), pairs.number("after")) {
        (Some(key), _) => ListPosition::Before(key),
        (None, Some(key)) => ListPosition::After(key),
        (None, None) => ListPosition::Before(i64::MAX),
    }
}

/// Returns the name of a state in addresses.
pub(crate) fn name_of(state: JobState) -> &'static str {
    let mut states = STATES.iter();
    let found = states.find(|(_, other)| *other == state);
    found.map_or("", |(name, _)| name)
}

fn state_named(name: &str) -> Result<JobState, PageError> {
    let found = STATES.iter().find(|(other, _)| *other == name);
    found.map(|(_, state)| *state).ok_or_else(|| {
        let names: Vec<&str> = STATES.iter().map(|(name, _)| *name).collect();
        PageError::Invalid(format!("A state is one of: all, {}.", names.join(", ")))
    })
}

/// Returns the path of the list of the jobs with one filter.
pub(crate) fn only(name: &str, value: &str) -> String {
    http::with_query("/jobs", &[(name, value)])
}

// --- From when to when: the filter by time of the lists ---

/// The choices, each with its name in the address.
pub(crate) const SINCE: [(&str, &str); 6] = [
    ("", "at any time"),
    ("15m", "in the last 15 min"),
    ("1h", "in the last hour"),
    ("today", "today"),
    ("24h", "in the last 24 h"),
    ("7d", "in the last 7 days"),
];

/// A span of time, as it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct When {
    /// One of [`SINCE`].
    pub(crate) since: &'static str,
    pub(crate) from: Option<NaiveDateTime>,
    pub(crate) to: Option<NaiveDateTime>,
}

impl When {
    /// Reads `since`, `from` and `to`.
    ///
    /// # Errors
    /// If one of the times is not one.
    pub(crate) fn of(pairs: &Pairs) -> Result<Self, PageError> {
        let asked = pairs.get("since").unwrap_or_default();
        let known = SINCE.into_iter().find(|(name, _)| *name == asked);
        Ok(When {
            since: known.map_or("", |(name, _)| name),
            from: pairs.get("from").map(moment).transpose()?,
            to: pairs.get("to").map(moment).transpose()?,
        })
    }

    /// Returns the bounds at this time.
    pub(crate) fn bounds(
        &self,
        now: NaiveDateTime,
    ) -> (Option<NaiveDateTime>, Option<NaiveDateTime>) {
        let ago = |minutes| now.checked_sub_signed(TimeDelta::minutes(minutes));
        let since = match self.since {
            "15m" => ago(15),
            "1h" => ago(60),
            "today" => Some(now.date().and_time(NaiveTime::MIN)),
            "24h" => ago(24 * 60),
            "7d" => ago(7 * 24 * 60),
            _ => None,
        };
        // Both may be given: then the later one counts.
        (self.from.max(since), self.to)
    }

    pub(crate) fn is_any(&self) -> bool {
        *self == When::default()
    }

    /// Returns the choice in words.
    pub(crate) fn label(&self) -> &'static str {
        let chosen = SINCE.into_iter().find(|(name, _)| *name == self.since);
        chosen.map_or("", |(_, label)| label)
    }
}

/// Returns a time as a field of a form has it.
pub(crate) fn field(at: Option<NaiveDateTime>) -> String {
    at.map_or_else(String::new, |at| at.format("%Y-%m-%dT%H:%M:%S").to_string())
}

/// Reads `2026-11-24T14:02`, with or without seconds, or a day.
fn moment(text: &str) -> Result<NaiveDateTime, PageError> {
    let text = text.trim().trim_end_matches('Z').replacen(' ', "T", 1);
    let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"];
    let mut times = formats
        .iter()
        .filter_map(|format| NaiveDateTime::parse_from_str(&text, format).ok());
    let day = || NaiveDate::parse_from_str(&text, "%Y-%m-%d").ok();
    times
        .next()
        .or_else(|| day().map(|day| day.and_time(NaiveTime::MIN)))
        .ok_or_else(|| {
            PageError::Invalid(
                "A time is written as 2026-11-24T14:02, in UTC. A day alone stands for its start."
                    .to_owned(),
            )
        })
}

// --- The search box: goes to what a text names ---

/// Goes to a job with this id, unique id or idempotency key, or else to a class, a queue or a
/// recurring task of this name, or else to the jobs whose arguments contain the text.
pub(crate) fn go(cx: &mut Cx<'_>, text: &str) -> Result<Response, PageError> {
    let text = text.trim();
    let to = if text.is_empty() {
        "/jobs".to_owned()
    } else {
        cx.read(|conn| path(conn, text))?
    };
    Ok(Response::see_other(cx.link(&to)))
}

fn path(conn: &mut Conn<'_>, text: &str) -> Result<String> {
    let action = "search for the text";
    let job = |id: i64| http::path(&["jobs", &id.to_string()]);
    if let Some(id) = number(text)
        && named::is_job(conn, id).during(action)?
    {
        return Ok(job(id));
    }
    let NamedThings {
        of_unique_id,
        of_idempotency_key,
        is_class,
        is_queue,
        is_task,
    } = named::named(conn, text).during(action)?;
    Ok(match of_unique_id.or(of_idempotency_key) {
        Some(id) => job(id),
        None if is_class => only("class", text),
        None if is_queue => http::path(&["queues", text]),
        None if is_task => http::with_query("/recurring", &[("key", text)]),
        None => only("args", text),
    })
}

/// Reads the id of a job as pages show it, `48,213,716`, or as logs do.
fn number(text: &str) -> Option<i64> {
    let text = text.trim_start_matches('#');
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_number = digits > 0
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b',');
    let text = text.replace(',', "");
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(query: &str) -> JobFilters {
        JobFilters::of(&Pairs::parse(query.as_bytes())).unwrap()
    }

    #[test]
    fn filters_survive_the_way_to_the_address_and_back() {
        let query = "state=failed&queue=a%26b&class=mail&error=x&uid=u%2F1&tag=t&batch=7&args=n%3A+1&group=f&since=1h&from=2026-11-24T14%3A00%3A00";
        let read = filters(query);
        assert_eq!(read.pairs().to_query(), format!("?{query}"));
        assert_eq!(JobFilters::of(&read.pairs()).unwrap(), read);
        assert_eq!(read.chips().len(), 10);
        let search = read.search();
        assert_eq!(search.queue.as_deref(), Some("a&b"));
        assert_eq!(search.arguments.as_deref(), Some("n: 1"));
        assert!(filters("queue=&state=all&q=").is_empty());
    }

    #[test]
    fn an_error_is_one_of_failed_jobs() {
        assert_eq!(filters("error=x").state, Some(JobState::Failed));
        assert_eq!(filters("state=ready&error=x").state, Some(JobState::Failed));
        assert_eq!(
            filters("state=discarded&error=x").state,
            Some(JobState::Discarded)
        );
        let ready = filters("error=x&queue=q").with_state(Some(JobState::Ready));
        assert_eq!(ready, "/jobs?queue=q&state=ready");
        assert!(JobFilters::of(&Pairs::parse(b"state=nonsense")).is_err());
        assert!(JobFilters::of(&Pairs::parse(b"batch=x")).is_err());
    }

    #[test]
    fn places_are_read() {
        let position = |query: &str| list_position(&Pairs::parse(query.as_bytes()));
        assert_eq!(position(""), ListPosition::Before(i64::MAX));
        assert_eq!(position("before=7"), ListPosition::Before(7));
        assert_eq!(position("after=7"), ListPosition::After(7));
        assert_eq!(position("after=x"), ListPosition::Before(i64::MAX));
    }

    fn when(query: &str) -> When {
        When::of(&Pairs::parse(query.as_bytes())).unwrap()
    }

    #[test]
    fn times_are_read_as_forms_and_people_write_them() {
        let now = moment("2026-11-24T14:30").unwrap();
        let bounds = |query: &str| {
            let (from, to) = when(query).bounds(now);
            (field(from), field(to))
        };
        let at = |text: &str| text.to_owned();
        assert_eq!(bounds(""), (at(""), at("")));
        assert_eq!(bounds("since=1h").0, "2026-11-24T13:30:00");
        assert_eq!(bounds("since=today").0, "2026-11-24T00:00:00");
        assert_eq!(
            bounds("since=1h&from=2026-11-24T14:00&to=2026-11-25"),
            (at("2026-11-24T14:00:00"), at("2026-11-25T00:00:00"))
        );
        assert_eq!(bounds("from=2026-11-24+14:00:05").0, "2026-11-24T14:00:05");
        assert!(when("since=nonsense").is_any());
        for wrong in ["from=yesterday", "to=2026-13-01", "from=%3Cb%3E"] {
            assert!(
                When::of(&Pairs::parse(wrong.as_bytes())).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn ids_are_read_as_they_are_shown() {
        for (text, id) in [
            ("48,213,716", Some(48_213_716)),
            ("#7", Some(7)),
            ("007", Some(7)),
            ("-7", None),
            ("7a", None),
            (",", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(number(text), id, "{text}");
        }
    }
}
