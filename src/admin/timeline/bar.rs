//! A timeline as a bar.

use crate::admin::timeline::entry::{EntryKind, Mark, TimelineEntry};
use chrono::{NaiveDateTime, TimeDelta};

/// How wide the bar is, in units.
const WIDTH: f64 = 1000.0;

/// What a part of the bar stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarKind {
    Ran,
    Failed,
    Waited,
    Blocked,
}

/// A part of the bar, in thousandths of its width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BarPart {
    pub(crate) kind: BarKind,
    pub(crate) from: f64,
    pub(crate) width: f64,
}

/// Returns when an entry ended, if it took a time.
fn over(entry: &TimelineEntry) -> Option<NaiveDateTime> {
    let micros = (entry.seconds? * 1e6).clamp(0.0, 9e15) as i64;
    entry
        .at?
        .checked_add_signed(TimeDelta::microseconds(micros))
}

/// Returns the end of the last entry.
pub(super) fn end(entries: &[TimelineEntry]) -> Option<NaiveDateTime> {
    let ends = entries.iter().filter(|entry| entry.kind != EntryKind::Next);
    ends.filter_map(|entry| over(entry).or(entry.at)).max()
}

/// Returns the parts of the bar, from the first event to the last, or to now if the job has not
/// ended.
pub(super) fn parts(entries: &[TimelineEntry], now: NaiveDateTime) -> Vec<BarPart> {
    let start = entries.iter().filter_map(|entry| entry.at).min();
    let is_open = entries
        .iter()
        .any(|entry| matches!(entry.kind, EntryKind::Now(_)));
    let end = if is_open { Some(now) } else { end(entries) };
    let Some((start, end)) = start.zip(end).filter(|(start, end)| start < end) else {
        return Vec::new();
    };
    let whole = seconds(end - start);
    let place = |at: NaiveDateTime| (seconds(at - start) / whole * WIDTH).clamp(0.0, WIDTH);
    let mut parts = Vec::new();
    for entry in entries {
        let Some((from, to)) = entry.at.zip(over(entry)) else {
            continue;
        };
        let (from, to) = (place(from), place(to));
        let kind = match entry.kind {
            EntryKind::Next => continue,
            EntryKind::Wait => BarKind::Waited,
            EntryKind::Now(Mark::Blocked) => BarKind::Blocked,
            EntryKind::Now(Mark::Running) => BarKind::Ran,
            EntryKind::Now(_) => BarKind::Waited,
            EntryKind::Event(_) => BarKind::Ran,
        };
        parts.push(BarPart {
            kind,
            from,
            width: to - from,
        });
        if entry.kind == EntryKind::Event(Mark::Failed) {
            parts.push(BarPart {
                kind: BarKind::Failed,
                from: (to - 1.5).max(0.0),
                width: 3.0,
            });
        }
    }
    parts
}

pub(super) fn seconds(delta: TimeDelta) -> f64 {
    delta.as_seconds_f64()
}
