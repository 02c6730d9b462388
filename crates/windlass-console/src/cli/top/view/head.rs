//! The lines above the panes: what is looked at, what is wrong, the sums, and the last hour.

use crate::cli::top::reader::{HourCurves, ReadPart};
use crate::cli::top::state::{KEYS, Pane, TopState};
use crate::cli::top::view::panes::{Tone, TopTheme, bounded, count, duration, line, rate};
use crate::read::doctor::scope::{Finding, Verdict};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline, Wrap};
use std::time::Instant;
use windlass::internal::clock;

/// The height of the curves.
pub(super) const CURVES: u16 = 3;

/// The width of what stands before a curve.
const NAME: u16 = 10;

/// The minutes of a curve.
const MINUTES: u16 = 60;

pub(super) fn title(state: &TopState, theme: TopTheme, now: Instant, width: u16) -> Line<'static> {
    let clock = state.time_at(now).map(|time| time.format("%H:%M:%S UTC"));
    let clock = clock.map_or_else(String::new, |time| time.to_string());
    let every = clock::in_units(state.every);
    let right = format!("{clock}  every {every} ");
    let name = format!(" windlass top  {}", line(&state.target));
    let left = usize::from(width).saturating_sub(right.chars().count());
    let name: String = name.chars().take(left.saturating_sub(1)).collect();
    let gap = " ".repeat(left.saturating_sub(name.chars().count()));
    Line::from(vec![
        Span::styled(name, theme.heading()),
        Span::raw(gap),
        theme.span(Tone::Quiet, right),
    ])
}

/// Returns what is wrong first: an outage, a frozen screen, the findings.
pub(super) fn banner(state: &TopState, theme: TopTheme, now: Instant) -> Line<'static> {
    if let Some(away) = &state.away {
        let since = state.time_at(away.at);
        let since = since.map_or_else(
            || "the start".to_owned(),
            |time| time.format("%H:%M:%S UTC").to_string(),
        );
        let ago = now.saturating_duration_since(away.at).as_secs_f64();
        let text = format!(
            " database away since {since} ({}): {}",
            duration(ago),
            line(&away.reason)
        );
        return Line::from(theme.span(Tone::Bad, text));
    }
    let Some(snapshot) = &state.snapshot else {
        return Line::from(theme.span(Tone::Quiet, " looking for the first time"));
    };
    if state.is_frozen {
        let text = format!(
            " frozen at {} UTC; p goes on",
            snapshot.now.format("%H:%M:%S")
        );
        return Line::from(theme.span(Tone::Warning, text));
    }
    findings(state, theme)
}

fn findings(state: &TopState, theme: TopTheme) -> Line<'static> {
    let findings = state.findings.as_ref();
    let findings = findings.and_then(|one| one.findings.value());
    let of = |verdict: Verdict| {
        let findings = findings.into_iter().flatten();
        findings
            .filter(|finding| finding.verdict == verdict)
            .count()
    };
    let named = |number: usize, one: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    };
    let (problems, warnings) = (of(Verdict::Problem), of(Verdict::Warning));
    let text = match (problems, warnings) {
        (0, 0) => return Line::default(),
        (0, warnings) => named(warnings, "warning"),
        (problems, 0) => named(problems, "problem"),
        (problems, warnings) => format!(
            "{} and {}",
            named(problems, "problem"),
            named(warnings, "warning")
        ),
    };
    let tone = if problems > 0 {
        Tone::Bad
    } else {
        Tone::Warning
    };
    Line::from(theme.span(tone, format!(" doctor: {text}; d shows them")))
}

pub(super) fn totals(state: &TopState, theme: TopTheme) -> Line<'static> {
    let Some(snapshot) = &state.snapshot else {
        return Line::default();
    };
    let Some(totals) = snapshot.totals.value() else {
        let problem = snapshot.totals.problem().unwrap_or_default();
        let text = format!(" the sums are missing: {}", line(&problem));
        return Line::from(theme.span(Tone::Warning, text));
    };
    let threads = snapshot.fleet.value().map(|fleet| fleet.threads);
    let of_threads = match threads {
        Some((_, 0)) | None => String::new(),
        Some((threads, busy)) => format!("  threads {}/{}", count(busy), count(threads)),
    };
    let failed = match totals.failed.is_zero() {
        true => Tone::Plain,
        false => Tone::Bad,
    };
    Line::from(vec![
        Span::raw(format!(" ready {}", bounded(totals.ready))),
        Span::raw(format!(
            "  running {}{of_threads}  ",
            bounded(totals.claimed)
        )),
        theme.span(failed, format!("failed {}", bounded(totals.failed))),
        Span::raw(format!("  scheduled {}", bounded(totals.scheduled))),
        Span::raw(format!("  blocked {}", bounded(totals.blocked))),
    ])
}

pub(super) fn draw_curves(frame: &mut Frame<'_>, state: &TopState, theme: TopTheme, area: Rect) {
    let nothing = HourCurves::default();
    let snapshot = state.snapshot.as_ref();
    let curves = snapshot.and_then(|snapshot| snapshot.curves.value());
    let curves = curves.unwrap_or(&nothing);
    let per_minute = |number: f64| match rate(number) {
        none if none.is_empty() => "none".to_owned(),
        rate => format!("{rate}/min"),
    };
    let last_wait = curves.waits.iter().rev().find_map(|wait| *wait);
    let wait = last_wait.map_or_else(
        || "none".to_owned(),
        |millis| duration(millis as f64 / 1_000.0),
    );
    let some = |counts: &[u64]| counts.iter().map(|count| Some(*count)).collect();
    let rows: [(&str, Vec<Option<u64>>, Tone, String); 3] = [
        (
            "finished",
            some(&curves.finished),
            Tone::Good,
            per_minute(curves.finished_now),
        ),
        (
            "failed",
            some(&curves.failed),
            Tone::Bad,
            per_minute(curves.failed_now),
        ),
        ("wait p99", curves.waits.clone(), Tone::Plain, wait),
    ];
    let areas: [Rect; 3] = Layout::vertical([Constraint::Length(1); 3]).areas(area);
    for ((name, values, tone, last), area) in rows.into_iter().zip(areas) {
        let [before, curve, after] = Layout::horizontal([
            Constraint::Length(NAME),
            Constraint::Max(MINUTES),
            Constraint::Min(NAME),
        ])
        .areas(area);
        frame.render_widget(
            Line::from(theme.span(Tone::Quiet, format!(" {name}"))),
            before,
        );
        draw_curve(frame, &values, theme.style(tone), curve);
        frame.render_widget(Line::from(format!(" {last}")), after);
    }
}

/// Draws the newest values that fit.
fn draw_curve(frame: &mut Frame<'_>, values: &[Option<u64>], style: Style, area: Rect) {
    let first = values.len().saturating_sub(usize::from(area.width));
    let style = style.remove_modifier(ratatui::style::Modifier::BOLD);
    let curve = Sparkline::default()
        .data(values[first..].iter().copied())
        .absent_value_symbol(" ")
        .style(style);
    frame.render_widget(curve, area);
}

// --- The overlay of the panes: the help, and the findings of `doctor` ---

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
        ReadPart::Read(findings) => of_findings(findings, theme),
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
