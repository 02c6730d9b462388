//! The pane of the queues.

use crate::cli::top::reader::{ReadPart, TopQueue};
use crate::cli::top::state::TopState;
use crate::cli::top::view::panes::{
    PaneView, Tone, TopTheme, bounded, duration, line, nothing, rate,
};
use crate::read::now::{QueueVerdict, QueueView};
use ratatui::layout::Constraint;
use ratatui::text::Text;
use ratatui::widgets::Row;

/// The least width at which all columns are shown.
const WIDE: u16 = 72;

/// The columns that are shown below that width: the names must stay readable.
const NARROW: [bool; 7] = [true, true, true, false, false, false, true];

/// Returns those of the columns that are shown.
fn shown<T>(columns: Vec<T>, is_wide: bool) -> Vec<T> {
    let columns = columns.into_iter().zip(NARROW);
    let shown = columns.filter(|(_, is_always)| is_wide || *is_always);
    shown.map(|(column, _)| column).collect()
}

pub(super) fn view(state: &TopState, theme: TopTheme, width: u16) -> PaneView {
    let is_wide = width >= WIDE;
    let part = state.snapshot.as_ref().map(|snapshot| &snapshot.queues);
    let queues = part.and_then(ReadPart::value);
    let more = match queues {
        Some(queues) if queues.is_more => ", more are not shown",
        _ => "",
    };
    PaneView {
        title: format!("Queues, the worst first{more}"),
        headings: shown(
            vec![
                Text::from("QUEUE"),
                right("READY"),
                right("OLDEST"),
                right("RUNNING"),
                right("PER MIN"),
                right("FAILING"),
                Text::from("VERDICT"),
            ],
            is_wide,
        ),
        widths: shown(
            vec![
                Constraint::Fill(1),
                Constraint::Length(9),
                Constraint::Length(7),
                Constraint::Length(8),
                Constraint::Length(8),
                Constraint::Length(7),
                Constraint::Fill(1),
            ],
            is_wide,
        ),
        rows: queues
            .into_iter()
            .flat_map(|queues| &queues.lines)
            .map(|queue| row(queue, theme, is_wide))
            .collect(),
        nothing: nothing(
            part,
            "no queue has jobs that are ready, running, or ended lately",
        ),
    }
}

fn right(text: impl Into<String>) -> Text<'static> {
    Text::from(text.into()).right_aligned()
}

fn row(line_of: &TopQueue, theme: TopTheme, is_wide: bool) -> Row<'static> {
    let queue = &line_of.queue;
    let (tone, verdict) = verdict(queue);
    let failing = rate(line_of.failed);
    let of_failing = if failing.is_empty() {
        Tone::Plain
    } else {
        Tone::Bad
    };
    let cells = vec![
        Text::from(line(&queue.name)),
        right(bounded(queue.ready)),
        right(queue.oldest_seconds.map_or_else(String::new, duration)),
        right(bounded(line_of.running)),
        right(rate(line_of.finished)),
        Text::from(theme.span(of_failing, failing)).right_aligned(),
        Text::from(theme.span(tone, verdict)),
    ];
    Row::new(shown(cells, is_wide))
}

/// Returns a verdict in few words, and how much it matters.
fn verdict(queue: &QueueView) -> (Tone, String) {
    match queue.verdict {
        QueueVerdict::Late { promise } => (
            Tone::Bad,
            format!("late, promises {}", duration(promise.as_secs_f64())),
        ),
        QueueVerdict::Unserved => (Tone::Bad, "no worker".to_owned()),
        QueueVerdict::Silent => (Tone::Bad, "its workers died".to_owned()),
        QueueVerdict::Quiet => (Tone::Warning, "its workers stop".to_owned()),
        QueueVerdict::Paused => (Tone::Warning, paused(queue)),
        QueueVerdict::InTime { .. } => (Tone::Good, "in time".to_owned()),
        QueueVerdict::Unjudged => (Tone::Plain, "served".to_owned()),
        QueueVerdict::Empty => (Tone::Quiet, "empty".to_owned()),
    }
}

/// Returns for how long it has been paused, by whom and why, as far as that is known.
fn paused(queue: &QueueView) -> String {
    let Some(pause) = &queue.pause else {
        return "paused".to_owned();
    };
    let by = pause.paused_by.as_deref().map(|by| format!(" by {by}"));
    let why = pause.pause_reason.as_deref().map(|why| format!(": {why}"));
    let ago = duration(pause.paused_seconds);
    let text = format!(
        "paused {ago}{}{}",
        by.unwrap_or_default(),
        why.unwrap_or_default()
    );
    line(&text)
}
