//! What covers the panes: the help, and the findings of `doctor`.

use crate::admin::doctor::scope::{Finding, Verdict};
use crate::cli::top::keys::KEYS;
use crate::cli::top::look::LookPart;
use crate::cli::top::state::{Pane, TopState};
use crate::cli::top::view::theme::{Tone, TopTheme};
use crate::cli::top::view::words::{duration, line};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};
use std::time::Instant;

pub(super) fn draw_help(frame: &mut Frame<'_>, state: &mut TopState, theme: TopTheme, area: Rect) {
    let mut lines: Vec<Line<'static>> = KEYS
        .iter()
        .map(|(keys, what)| {
            Line::from(vec![
                Span::styled(format!(" {keys:<16}"), theme.heading()),
                Span::raw(*what),
            ])
        })
        .collect();
    lines.push(Line::default());
    lines.push(Line::from(
        " PER MIN and FAILING are those of the last five minutes. The curves are the last hour, by \
         minutes. This program only reads.",
    ));
    draw(frame, state, area, theme, "Keys", lines);
}

pub(super) fn draw_findings(
    frame: &mut Frame<'_>,
    state: &mut TopState,
    theme: TopTheme,
    area: Rect,
    now: Instant,
) {
    let Some(found) = &state.findings else {
        let lines = vec![Line::from(" looking")];
        return draw(frame, state, area, theme, "Findings of doctor", lines);
    };
    let ago = duration(now.saturating_duration_since(found.at).as_secs_f64());
    let title = format!("Findings of doctor about the newest rows, {ago} ago");
    let lines = match &found.findings {
        LookPart::Read(findings) => of_findings(findings, theme),
        missing => {
            let problem = missing.problem().unwrap_or_default();
            vec![Line::from(format!(" missing: {}", line(&problem)))]
        }
    };
    draw(frame, state, area, theme, &title, lines);
}

/// Returns the findings, the worst first.
fn of_findings(findings: &[Finding], theme: TopTheme) -> Vec<Line<'static>> {
    let mut findings: Vec<&Finding> = findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let lines = findings.into_iter().map(|finding| {
        let (tone, word) = match finding.verdict {
            Verdict::Fine => (Tone::Good, "fine"),
            Verdict::Warning => (Tone::Warning, "warning"),
            Verdict::Problem => (Tone::Bad, "problem"),
        };
        Line::from(vec![
            theme.span(tone, format!(" {word:<8} ")),
            Span::styled(format!("{}: ", finding.check), theme.heading()),
            Span::raw(line(&finding.says)),
        ])
    });
    lines.collect()
}

/// Draws lines that scroll, from the selected one on.
fn draw(
    frame: &mut Frame<'_>,
    state: &mut TopState,
    area: Rect,
    theme: TopTheme,
    title: &str,
    lines: Vec<Line<'static>>,
) {
    let place = Pane::ALL.len();
    state.lines[place] = lines.len();
    let first = state.selected[place].min(lines.len().saturating_sub(1));
    state.selected[place] = first;
    let block = Block::new()
        .borders(Borders::TOP)
        .border_style(theme.title(true))
        .title_style(theme.title(true))
        .title(format!("▶ {title} "));
    let text = Paragraph::new(lines.into_iter().skip(first).collect::<Vec<_>>())
        .wrap(Wrap { trim: false })
        .block(block);
    frame.render_widget(text, area);
}
