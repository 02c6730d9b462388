//! Draws the screen.

mod failures;
mod head;
mod overlay;
mod panes;
mod processes;
mod queues;
mod theme;
mod words;

pub(crate) use theme::TopTheme;

use crate::cli::top::state::{Overlay, Pane, TopState};
use crate::cli::top::view::panes::PaneView;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use std::time::Instant;

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
        Overlay::Help => overlay::draw_help(frame, state, theme, body),
        Overlay::Findings => overlay::draw_findings(frame, state, theme, body, now),
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
        processes::view(state, theme),
        failures::view(state, theme, now),
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
