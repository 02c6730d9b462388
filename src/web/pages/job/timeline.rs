//! The timeline of a job as its page shows it.

use crate::admin::timeline::{BarKind, BarPart, EntryKind, Timeline, TimelineEntry};
use crate::web::pages::words::{of_mark, sentence};
use crate::web::request::shell::Shell;
use crate::web::show::json::cut;
use crate::web::show::markup::{Markup, escaped, state};
use crate::web::show::times;
use chrono::NaiveDateTime;

/// The longest backtrace that is shown, in characters.
const LONGEST: usize = 20_000;

/// A line of the timeline.
#[derive(Debug)]
pub(crate) struct TimelineRow {
    /// `w` for a wait, `now` for what the job does now.
    pub(crate) class: &'static str,
    pub(crate) at: Markup,
    pub(crate) what: Markup,
    /// Empty if it took no time.
    pub(crate) took: String,
    pub(crate) how: Markup,
    pub(crate) details: Option<String>,
}

/// The timeline of a job.
#[derive(Debug)]
pub(crate) struct TimelineView {
    pub(crate) rows: Vec<TimelineRow>,
    /// The bar, as SVG; empty if it would have no width.
    pub(crate) bar: Markup,
    pub(crate) start: String,
    pub(crate) end: String,
}

impl TimelineView {
    pub(crate) fn of(timeline: &Timeline, shell: &Shell) -> Self {
        let now = shell.now;
        let is_open = timeline
            .entries
            .iter()
            .any(|entry| matches!(entry.kind, EntryKind::Now(_)));
        let text =
            |at: Option<NaiveDateTime>| at.map_or_else(String::new, |at| times::moment(at, now));
        let rows = timeline.entries.iter();
        TimelineView {
            rows: rows.map(|entry| row(entry, shell)).collect(),
            bar: bar(&timeline.bar),
            start: text(timeline.start),
            end: match is_open {
                true => "now".to_owned(),
                false => text(timeline.end),
            },
        }
    }
}

fn row(entry: &TimelineEntry, shell: &Shell) -> TimelineRow {
    let now = shell.now;
    let plain = |what: &str| Markup::trusted(escaped(what));
    let marked =
        |mark| Markup::trusted(state(&format!("{} ink", of_mark(mark)), &entry.what).to_string());
    let (class, what) = match entry.kind {
        EntryKind::Event(mark) => ("", marked(mark)),
        EntryKind::Now(mark) => ("now", marked(mark)),
        EntryKind::Wait => ("w", plain(&entry.what)),
        EntryKind::Next => ("next", plain(&entry.what)),
    };
    let is_event = matches!(entry.kind, EntryKind::Event(_) | EntryKind::Now(_));
    let at = entry.at.filter(|_| is_event);
    TimelineRow {
        class,
        at: match entry.kind {
            EntryKind::Next => plain("next"),
            _ => at.map_or_else(Markup::default, |at| exact(at, now)),
        },
        what,
        took: entry.seconds.map(times::duration).unwrap_or_default(),
        how: sentence(&entry.how, "", shell, now),
        details: entry.details.as_deref().map(|text| cut(text, LONGEST)),
    }
}

/// Returns a time with its milliseconds, and its day if that is not today.
fn exact(at: NaiveDateTime, now: NaiveDateTime) -> Markup {
    let format = match at.date() == now.date() {
        true => "%H:%M:%S%.3f",
        false => "%m-%d %H:%M:%S%.3f",
    };
    times::time(at, &at.format(format).to_string())
}

fn bar(parts: &[BarPart]) -> Markup {
    if parts.is_empty() {
        return Markup::default();
    }
    let rects: Vec<String> = parts
        .iter()
        .map(|part| {
            let (class, y, height) = match part.kind {
                BarKind::Ran => ("f-run", 0, 12),
                BarKind::Failed => ("f-fail", 0, 12),
                BarKind::Waited => ("f-sched", 4, 4),
                BarKind::Blocked => ("f-block", 4, 4),
            };
            let width = part.width.max(0.5);
            format!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\"/>",
                part.from
            )
        })
        .collect();
    Markup::trusted(format!(
        "<svg class=\"life-line\" viewBox=\"0 0 1000 12\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"The timeline as a bar; the table below has the same\">{}</svg>",
        rects.concat()
    ))
}
