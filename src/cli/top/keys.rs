//! What each key does.

use crate::cli::top::state::{Overlay, Pane, TopState};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Instant;

/// The keys, and what they do, for the help.
pub(crate) const KEYS: [(&str, &str); 10] = [
    ("q, Ctrl-C", "quit"),
    ("Tab, Shift-Tab", "go to the next pane, or the one before"),
    ("j k, arrows", "move by a line"),
    ("PgUp PgDn", "move by ten lines"),
    ("g G, Home End", "go to the first or the last line"),
    ("p", "freeze what is shown, or go on"),
    ("r", "look at once"),
    ("d", "show the findings of doctor, read anew"),
    ("?", "show this help"),
    ("Esc", "close the help or the findings"),
];

/// How far a page is.
const FAR: isize = 10;

/// What happens after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyEffect {
    Stay,
    Quit,
    /// Stop like any other program at Ctrl-Z.
    Suspend,
    /// Draw everything again.
    Redraw,
}

/// Applies a key.
pub(crate) fn press(state: &mut TopState, key: KeyEvent, now: Instant) -> KeyEffect {
    if key.kind == KeyEventKind::Release {
        return KeyEffect::Stay;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => KeyEffect::Quit,
            KeyCode::Char('z') => KeyEffect::Suspend,
            KeyCode::Char('l') => KeyEffect::Redraw,
            _ => KeyEffect::Stay,
        };
    }
    match key.code {
        KeyCode::Char('q') => return KeyEffect::Quit,
        KeyCode::Esc => state.show(Overlay::None),
        KeyCode::Char('?') => toggle(state, Overlay::Help),
        KeyCode::Char('d') => {
            toggle(state, Overlay::Findings);
            if state.overlay == Overlay::Findings {
                state.want_findings();
            }
        }
        KeyCode::Char('p') => freeze(state, now),
        KeyCode::Char('r') => {
            state.is_frozen = false;
            state.hurry(now);
        }
        KeyCode::Tab => state.pane = state.pane.further(1),
        KeyCode::BackTab => state.pane = state.pane.further(Pane::ALL.len() - 1),
        code => step(state, code),
    }
    KeyEffect::Stay
}

fn toggle(state: &mut TopState, overlay: Overlay) {
    let is_shown = state.overlay == overlay;
    state.show(if is_shown { Overlay::None } else { overlay });
}

fn freeze(state: &mut TopState, now: Instant) {
    state.is_frozen = !state.is_frozen;
    if !state.is_frozen {
        state.hurry(now);
    }
}

fn step(state: &mut TopState, code: KeyCode) {
    match code {
        KeyCode::Char('j') | KeyCode::Down => state.step(1),
        KeyCode::Char('k') | KeyCode::Up => state.step(-1),
        KeyCode::PageDown => state.step(FAR),
        KeyCode::PageUp => state.step(-FAR),
        KeyCode::Char('g') | KeyCode::Home => state.step(isize::MIN),
        KeyCode::Char('G') | KeyCode::End => state.step(isize::MAX),
        _ => {}
    }
}
