//! The panes: tables that scroll.

use crate::cli::top::reader::ReadPart;
use crate::cli::top::state::TopState;
use crate::read::now::{Member, MemberKind};
use crate::read::sql::fleet::HeldJob;
use crate::terminal::{has_colors, printable};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Span, Text};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState};
use std::borrow::Cow;
use windlass::internal::db::query::ready::CappedCount;

/// The title and the headings.
const FRAME: u16 = 2;

/// The least height of a pane: its frame and two lines.
const LEAST: u16 = 4;

/// A table.
pub(super) struct PaneView {
    pub(super) title: String,
    pub(super) headings: Vec<Text<'static>>,
    pub(super) widths: Vec<Constraint>,
    pub(super) rows: Vec<Row<'static>>,
    /// The text that is shown if there are no rows.
    pub(super) nothing: String,
}

impl PaneView {
    /// Returns the height at which all its lines are seen.
    pub(super) fn wanted_height(&self) -> u16 {
        let rows = self.rows.len().max(1);
        u16::try_from(rows)
            .unwrap_or(u16::MAX)
            .saturating_add(FRAME)
    }

    pub(super) fn draw(
        self,
        frame: &mut Frame<'_>,
        area: Rect,
        theme: TopTheme,
        is_focused: bool,
        selected: &mut usize,
    ) {
        let mark = if is_focused { "▶" } else { "─" };
        let block = Block::new()
            .borders(Borders::TOP)
            .border_style(theme.title(is_focused))
            .title_style(theme.title(is_focused))
            .title(format!("{mark} {} ", self.title));
        if self.rows.is_empty() {
            frame.render_widget(Paragraph::new(self.nothing).block(block), area);
            return;
        }
        *selected = (*selected).min(self.rows.len() - 1);
        let mut table = Table::new(self.rows, self.widths)
            .header(Row::new(self.headings).style(theme.heading()))
            .column_spacing(1)
            .block(block);
        if is_focused {
            table = table.row_highlight_style(theme.selected());
        }
        let mut state = TableState::new().with_selected(Some(*selected));
        frame.render_stateful_widget(table, area, &mut state);
    }
}

/// Returns what stands in a pane without lines: why they are missing, or `otherwise`. Before the
/// first snapshot nothing is known.
pub(super) fn nothing<T>(part: Option<&ReadPart<T>>, otherwise: &str) -> String {
    let Some(part) = part else {
        return String::new();
    };
    match part.problem() {
        Some(problem) => format!(" missing: {}", line(&problem)),
        None => format!(" {otherwise}"),
    }
}

/// Divides a height among panes: the focused one gets its least, then the others theirs, then the
/// focused one what it wants, then the others, and the last one what is left.
pub(super) fn heights(height: u16, wanted: [u16; 3], focus: usize) -> [u16; 3] {
    let focused = wanted[focus].min(LEAST).min(height);
    let mut heights = wanted.map(|wanted| wanted.min(LEAST).min((height - focused) / 2));
    heights[focus] = focused;
    let mut left = height.saturating_sub(heights.iter().sum());
    let order = [focus, 0, 1, 2];
    for index in order {
        let more = wanted[index].saturating_sub(heights[index]).min(left);
        heights[index] += more;
        left -= more;
    }
    heights[2] += left;
    heights
}

// --- The pane of the processes, each with what its threads run ---

pub(super) fn view(state: &TopState, theme: TopTheme) -> PaneView {
    let part = state.snapshot.as_ref().map(|snapshot| &snapshot.fleet);
    let fleet = part.and_then(ReadPart::value);
    let more = match fleet {
        Some(fleet) if fleet.is_more => ", more are not shown",
        _ => "",
    };
    let mut rows = Vec::new();
    for (member, jobs) in fleet.into_iter().flat_map(|fleet| &fleet.members) {
        rows.push(of_process(member, theme));
        rows.extend(jobs.iter().map(|job| of_job(job, theme)));
    }
    PaneView {
        title: format!("Processes, and what their threads run{more}"),
        headings: vec![
            Text::from("PROCESS"),
            Text::from("THREADS").right_aligned(),
            Text::from("FOR").right_aligned(),
            Text::from("STATE"),
        ],
        widths: vec![
            Constraint::Fill(1),
            Constraint::Length(9),
            Constraint::Length(8),
            Constraint::Fill(1),
        ],
        rows,
        nothing: nothing(part, "no process is registered: no jobs are processed"),
    }
}

fn of_process(member: &Member, theme: TopTheme) -> Row<'static> {
    let threads = match member.kind {
        MemberKind::Worker => format!("{}/{}", count(member.running), count(member.threads)),
        _ => String::new(),
    };
    let (tone, state) = state_of(member);
    let name = format!("{} {}", member.row.kind.to_lowercase(), member.location());
    Row::new(vec![
        Text::from(line(&name)),
        Text::from(threads).right_aligned(),
        Text::from(duration(member.row.age_seconds)).right_aligned(),
        Text::from(theme.span(tone, line(&state))),
    ])
}

fn state_of(member: &Member) -> (Tone, String) {
    if member.is_dead() {
        let heartbeat = duration(member.row.heartbeat_seconds);
        return (Tone::Bad, format!("dead: last heartbeat {heartbeat} ago"));
    }
    if member.row.draining {
        return (Tone::Warning, "stopping".to_owned());
    }
    if member.is_quiet() {
        return (Tone::Warning, "quiet: claims nothing".to_owned());
    }
    let queues = match member.queues.as_str() {
        "" => String::new(),
        queues => format!("serves {queues}"),
    };
    (Tone::Quiet, queues)
}

fn of_job(job: &HeldJob, theme: TopTheme) -> Row<'static> {
    let thread = job.note.thread.as_deref().unwrap_or_default();
    let thread = thread.strip_prefix("windlass-").unwrap_or(thread);
    let progress = job.note.progress.as_ref();
    let progress = progress.map_or_else(String::new, |progress| {
        format!("{:.0}% {}", progress.percent, progress.message)
    });
    let name = format!("{} {}", job.class_name, job.job_id);
    Row::new(vec![
        Text::from(format!("  └ {}", line(&name))),
        Text::from(theme.span(Tone::Quiet, line(thread))).right_aligned(),
        Text::from(duration(job.seconds)).right_aligned(),
        Text::from(line(&format!("of {}  {progress}", job.queue_name))),
    ])
}

// --- Colors, or none ---

/// The importance of a text, by which it is styled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Quiet,
    Good,
    Warning,
    Bad,
}

/// The styles. Without colors, what matters is bold, and the words say the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopTheme {
    pub(crate) has_colors: bool,
}

impl TopTheme {
    /// Returns the theme that the environment asks for.
    pub(crate) fn of_environment() -> Self {
        TopTheme {
            has_colors: has_colors(),
        }
    }

    pub(crate) fn style(self, tone: Tone) -> Style {
        let color = match tone {
            Tone::Plain => None,
            Tone::Quiet => Some(Color::DarkGray),
            Tone::Good => Some(Color::Green),
            Tone::Warning => Some(Color::Yellow),
            Tone::Bad => Some(Color::Red),
        };
        let style = match color.filter(|_| self.has_colors) {
            Some(color) => Style::new().fg(color),
            None => Style::new(),
        };
        match tone {
            Tone::Warning | Tone::Bad => style.add_modifier(Modifier::BOLD),
            Tone::Quiet if !self.has_colors => style.add_modifier(Modifier::DIM),
            _ => style,
        }
    }

    pub(crate) fn span<'t>(self, tone: Tone, text: impl Into<Cow<'t, str>>) -> Span<'t> {
        Span::styled(text, self.style(tone))
    }

    /// Returns the name of a key.
    pub(crate) fn key(self, text: String) -> Span<'static> {
        Span::styled(text, Style::new().add_modifier(Modifier::REVERSED))
    }

    /// Returns the style of headings.
    pub(crate) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of the selected line.
    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Returns the style of the title of a pane.
    pub(crate) fn title(self, is_focused: bool) -> Style {
        match (is_focused, self.has_colors) {
            (true, true) => self.heading().fg(Color::Cyan),
            (true, false) => self.heading(),
            (false, _) => self.style(Tone::Quiet),
        }
    }
}

// --- Numbers and times in few letters ---

/// Returns a duration with its largest units: `240ms`, `3.1s`, `6m 12s`, `3h 11m`, `2d 4h`.
pub(super) fn duration(seconds: f64) -> String {
    // A clock that was set back makes it negative.
    let seconds = if seconds.is_finite() {
        seconds.clamp(0.0, 1e9)
    } else {
        0.0
    };
    if seconds < 0.9995 {
        return format!("{:.0}ms", seconds * 1_000.0);
    }
    if seconds < 9.95 {
        return format!("{seconds:.1}s");
    }
    let whole = rounded_number(seconds);
    let (large, unit, small, small_unit) = match whole {
        0..60 => return format!("{whole}s"),
        60..3_600 => (whole / 60, "m", whole % 60, "s"),
        3_600..86_400 => (whole / 3_600, "h", whole % 3_600 / 60, "m"),
        _ => (whole / 86_400, "d", whole % 86_400 / 3_600, "h"),
    };
    match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit} {small}{small_unit}"),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive and small"
)]
fn rounded_number(seconds: f64) -> u64 {
    seconds.round() as u64
}

/// Returns a whole number with separators: `1,204`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Returns a count that may have stopped at its limit: `10,000+`.
pub(super) fn bounded(number: CappedCount) -> String {
    let more = if number.is_more { "+" } else { "" };
    format!("{}{more}", count(number.count))
}

/// Returns how often something happens per minute: `0.4`, `87`, `1,204`; nothing for never.
pub(super) fn rate(per_minute: f64) -> String {
    match per_minute {
        rate if rate < 0.05 => String::new(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => count(rounded_number(rate)),
    }
}

/// Returns a text as one line without control characters.
pub(super) fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    printable(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_focused_pane_is_seen_first() {
        assert_eq!(heights(17, [20, 20, 20], 0), [9, 4, 4]);
        assert_eq!(heights(17, [20, 20, 20], 2), [4, 4, 9]);
        assert_eq!(heights(17, [3, 3, 3], 0), [3, 3, 11]);
        assert_eq!(heights(17, [3, 20, 3], 0), [3, 11, 3]);
        assert_eq!(heights(7, [20, 20, 20], 1), [1, 5, 1]);
        assert_eq!(heights(3, [20, 20, 20], 0), [3, 0, 0]);
        assert_eq!(heights(0, [20, 20, 20], 0), [0, 0, 0]);
    }

    #[test]
    fn times_and_numbers_are_short() {
        for (seconds, shown) in [
            (-3.0, "0ms"),
            (f64::NAN, "0ms"),
            (0.24, "240ms"),
            (3.12, "3.1s"),
            (9.96, "10s"),
            (59.6, "1m"),
            (372.0, "6m 12s"),
            (11_460.0, "3h 11m"),
            (187_200.0, "2d 4h"),
        ] {
            assert_eq!(duration(seconds), shown, "{seconds}");
        }
        assert_eq!(
            (count(1_234_567), count(7)),
            ("1,234,567".into(), "7".into())
        );
        assert_eq!(
            (rate(0.0), rate(0.42), rate(1_204.4)),
            (String::new(), "0.4".into(), "1,204".into())
        );
        assert_eq!(line("a\n\u{1b}[2J  b"), "a \\u{1b}[2J b");
    }
}
