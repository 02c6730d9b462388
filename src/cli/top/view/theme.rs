//! Colors, or none.

use crate::terminal::output::has_colors;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use std::borrow::Cow;

/// How much something matters.
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
