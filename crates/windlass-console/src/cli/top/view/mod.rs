//! Draws the screen.

mod head;
mod panes;
mod queues;

use crate::cli::top::reader::ReadPart;
use crate::cli::top::state::{Overlay, Pane, TopState};
use crate::cli::top::view::panes::{PaneView, Tone, count, duration, line, nothing};
use chrono::NaiveDateTime;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row};
use std::time::Instant;
use windlass::failed::FailedGroup;

pub(crate) use crate::cli::top::view::panes::TopTheme;

/// The smallest screen on which something can be read.
const LEAST: (u16, u16) = (40, 10);

/// Draws everything, and notes how many lines each pane has.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut TopState, theme: TopTheme, now: Instant) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = "This terminal is too small; 80 columns and 24 lines are good.";
        frame.render_widget(
            Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }),
            area,
        );
        return;
    }
    let [top, banner, totals, curves, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(head::CURVES),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(head::title(state, theme, now, area.width), top);
    frame.render_widget(head::banner(state, theme, now), banner);
    frame.render_widget(head::totals(state, theme), totals);
    head::draw_curves(frame, state, theme, curves);
    match state.overlay {
        Overlay::None => draw_panes(frame, state, theme, body, now),
        Overlay::Help => head::draw_help(frame, state, theme, body),
        Overlay::Findings => head::draw_findings(frame, state, theme, body, now),
    }
    frame.render_widget(foot_line(state, theme), foot);
}

fn draw_panes(
    frame: &mut Frame<'_>,
    state: &mut TopState,
    theme: TopTheme,
    body: Rect,
    now: Instant,
) {
    let views: [PaneView; 3] = [
        queues::view(state, theme, body.width),
        panes::view(state, theme),
        view(state, theme, now),
    ];
    let wanted = [0, 1, 2].map(|index: usize| views[index].wanted_height());
    let heights = panes::heights(body.height, wanted, state.pane.index());
    let areas: [Rect; 3] = Layout::vertical(heights.map(Constraint::Length)).areas(body);
    for ((view, area), pane) in views.into_iter().zip(areas).zip(Pane::ALL) {
        let index = pane.index();
        state.lines[index] = view.rows.len();
        let is_focused = state.pane == pane;
        view.draw(frame, area, theme, is_focused, &mut state.selected[index]);
    }
}

fn foot_line(state: &TopState, theme: TopTheme) -> Line<'static> {
    let freeze = if state.is_frozen { "go on" } else { "freeze" };
    let keys = [
        ("q", "quit"),
        ("Tab", "next pane"),
        ("j/k", "move"),
        ("p", freeze),
        ("d", "findings"),
        ("?", "help"),
    ];
    let spans = keys.into_iter().flat_map(|(key, what)| {
        [
            theme.key(format!(" {key} ")),
            ratatui::text::Span::raw(format!("{what}  ")),
        ]
    });
    Line::from_iter(spans)
}

// --- The pane of the failures, by group ---

fn view(state: &TopState, theme: TopTheme, now: Instant) -> PaneView {
    let part = state.snapshot.as_ref().map(|snapshot| &snapshot.failures);
    let failures = part.and_then(ReadPart::value);
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
