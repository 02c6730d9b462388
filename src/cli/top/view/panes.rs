//! The panes: tables that scroll.

use crate::cli::top::look::LookPart;
use crate::cli::top::view::theme::TopTheme;
use crate::cli::top::view::words::line;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Text;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState};

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
    /// What stands there if there are no rows.
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
/// first look nothing is known.
pub(super) fn nothing<T>(part: Option<&LookPart<T>>, otherwise: &str) -> String {
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
}
