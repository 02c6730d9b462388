//! From when to when: the filter by time of the lists.

use crate::web::http::page_error::PageError;
use crate::web::http::pairs::Pairs;
use chrono::{NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
