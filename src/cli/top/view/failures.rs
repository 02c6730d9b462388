//! The pane of the failures, by group.

use crate::admin::groups::FailedGroup;
use crate::cli::top::look::LookPart;
use crate::cli::top::state::TopState;
use crate::cli::top::view::panes::{PaneView, nothing};
use crate::cli::top::view::theme::{Tone, TopTheme};
use crate::cli::top::view::words::{count, duration, line};
use chrono::NaiveDateTime;
use ratatui::layout::Constraint;
use ratatui::text::Text;
use ratatui::widgets::Row;
use std::time::Instant;

pub(super) fn view(state: &TopState, theme: TopTheme, now: Instant) -> PaneView {
    let part = state.look.as_ref().map(|look| &look.failures);
    let failures = part.and_then(LookPart::value);
    let more = match failures {
        Some(failures) if !failures.is_complete => ", older ones are not shown",
        _ => "",
    };
    let time = state.time_at(now);
    PaneView {
        title: format!("Failed jobs, the newest first{more}"),
        headings: vec![
            Text::from("JOBS").right_aligned(),
            Text::from("LAST").right_aligned(),
            Text::from("CLASS"),
            Text::from("FAILURE"),
        ],
        widths: vec![
            Constraint::Length(7),
            Constraint::Length(8),
            Constraint::Fill(1),
            Constraint::Fill(3),
        ],
        rows: failures
            .into_iter()
            .flat_map(|failures| &failures.groups)
            .map(|group| row(group, time, theme))
            .collect(),
        nothing: nothing(part, "no job has failed"),
    }
}

fn row(group: &FailedGroup, now: Option<NaiveDateTime>, theme: TopTheme) -> Row<'static> {
    let more = if group.is_exact { "" } else { "+" };
    let last = now.map(|now| (now - group.last_at.naive_utc()).as_seconds_f64());
    Row::new(vec![
        Text::from(theme.span(Tone::Bad, format!("{}{more}", count(group.count)))).right_aligned(),
        Text::from(last.map_or_else(String::new, duration)).right_aligned(),
        Text::from(line(&group.class_name)),
        Text::from(line(&format!("{}: {}", group.kind, group.shape))),
    ])
}
