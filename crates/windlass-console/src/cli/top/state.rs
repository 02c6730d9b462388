//! The state of the screen, and the next request to the reader.

use crate::cli::top::reader::{ReadAnswer, ReadRequest, Snapshot, TopFindings};
use chrono::NaiveDateTime;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::time::{Duration, Instant};
use windlass::Result;
use windlass::internal::process::base::stop;

/// The time limit of an answer. Each part of a snapshot has its own limit; together, with a new
/// connection, they may take some seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A part of the screen that the keys move through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pane {
    Queues,
    Processes,
    Failures,
}

impl Pane {
    pub(crate) const ALL: [Pane; 3] = [Pane::Queues, Pane::Processes, Pane::Failures];

    pub(crate) fn index(self) -> usize {
        match self {
            Pane::Queues => 0,
            Pane::Processes => 1,
            Pane::Failures => 2,
        }
    }

    /// Returns the pane so many places further.
    pub(crate) fn further(self, by: usize) -> Pane {
        Pane::ALL[(self.index() + by) % Pane::ALL.len()]
    }
}

/// The overlay that covers the panes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlay {
    None,
    Help,
    Findings,
}

/// Since when the database has been away.
#[derive(Debug, Clone)]
pub(crate) struct AwaySince {
    pub(crate) at: Instant,
    pub(crate) reason: String,
}

/// The state of the screen.
#[derive(Debug, Clone)]
pub(crate) struct TopState {
    pub(crate) target: String,
    pub(crate) every: Duration,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) findings: Option<TopFindings>,
    pub(crate) away: Option<AwaySince>,
    pub(crate) is_frozen: bool,
    pub(crate) overlay: Overlay,
    pub(crate) pane: Pane,
    /// The selected line of each pane, by its index, and of the overlay.
    pub(crate) selected: [usize; 4],
    /// The number of lines of each of them, as it was last drawn.
    pub(crate) lines: [usize; 4],
    /// The time of the request that is under way.
    asked_at: Option<Instant>,
    next_at: Instant,
    wants_findings: bool,
}

impl TopState {
    pub(crate) fn new(target: String, every: Duration, now: Instant) -> Self {
        TopState {
            target,
            every,
            snapshot: None,
            findings: None,
            away: None,
            is_frozen: false,
            overlay: Overlay::None,
            pane: Pane::Queues,
            selected: [0; 4],
            lines: [0; 4],
            asked_at: None,
            next_at: now,
            wants_findings: true,
        }
    }

    /// Returns what to ask for now: one thing at a time, and nothing while the screen is frozen.
    pub(crate) fn request(&self, now: Instant) -> Option<ReadRequest> {
        if self.asked_at.is_some() {
            return None;
        }
        if self.wants_findings && self.snapshot.is_some() {
            return Some(ReadRequest::Findings);
        }
        let is_due = !self.is_frozen && now >= self.next_at;
        is_due.then_some(ReadRequest::Snapshot)
    }

    /// Marks that something was asked for.
    pub(crate) fn asked(&mut self, request: ReadRequest, now: Instant) {
        self.asked_at = Some(now);
        match request {
            ReadRequest::Snapshot => self.next_at = now + self.every,
            ReadRequest::Findings => self.wants_findings = false,
        }
    }

    /// Asks for new findings.
    pub(crate) fn want_findings(&mut self) {
        self.wants_findings = true;
    }

    /// Reads a snapshot at once.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.next_at = now;
    }

    /// Takes an answer.
    pub(crate) fn take(&mut self, answer: ReadAnswer, now: Instant) {
        let asked_at = self.asked_at.take().unwrap_or(now);
        match answer {
            ReadAnswer::Away(reason) => {
                let at = self.away.take().map_or(asked_at, |away| away.at);
                self.away = Some(AwaySince { at, reason });
                // One attempt after the other would only add load.
                self.next_at = self.next_at.max(now + self.every);
            }
            ReadAnswer::Snapshot(snapshot) => {
                self.away = None;
                self.snapshot = Some(*snapshot);
            }
            ReadAnswer::Findings(findings) => {
                self.away = None;
                self.findings = Some(findings);
            }
        }
    }

    /// Notices that an answer is overdue.
    pub(crate) fn notice(&mut self, now: Instant) {
        let Some(asked_at) = self.asked_at else {
            return;
        };
        if self.away.is_none() && now.saturating_duration_since(asked_at) > PATIENCE {
            self.away = Some(AwaySince {
                at: asked_at,
                reason: "no answer".to_owned(),
            });
        }
    }

    /// Returns the database's time at this instant, as far as the last snapshot shows it.
    pub(crate) fn time_at(&self, at: Instant) -> Option<NaiveDateTime> {
        let snapshot = self.snapshot.as_ref()?;
        let moved = match at.checked_duration_since(snapshot.at) {
            Some(later) => chrono::TimeDelta::from_std(later).ok()?,
            None => -chrono::TimeDelta::from_std(snapshot.at - at).ok()?,
        };
        snapshot.now.checked_add_signed(moved)
    }

    /// Returns the place of the lines that the keys move through.
    pub(crate) fn focus(&self) -> usize {
        match self.overlay {
            Overlay::None => self.pane.index(),
            Overlay::Help | Overlay::Findings => Pane::ALL.len(),
        }
    }

    /// Moves the selection by so many lines.
    pub(crate) fn step(&mut self, by: isize) {
        let focus = self.focus();
        let last = self.lines[focus].saturating_sub(1);
        let at = self.selected[focus].min(last);
        self.selected[focus] = at.saturating_add_signed(by).min(last);
    }

    pub(crate) fn show(&mut self, overlay: Overlay) {
        self.overlay = overlay;
        self.selected[Pane::ALL.len()] = 0;
    }
}

// --- The keys ---

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

/// The number of lines in a page.
const FAR: isize = 10;

/// The effect of a key.
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

// --- The thread that reads the terminal ---

/// The thread, by its channel.
#[derive(Debug)]
pub(crate) struct Keyboard {
    events: Receiver<io::Result<Event>>,
}

/// The most keys that may be typed ahead; more wait in the terminal.
const AHEAD: usize = 64;

impl Keyboard {
    /// Starts the thread, once the terminal has been taken. It ends with the program.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start() -> Result<Self> {
        let (outgoing, events) = bounded(AHEAD);
        stop::spawn("top-keyboard", move || {
            loop {
                let read = event::read();
                let is_last = read.is_err();
                if outgoing.send(read).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Keyboard { events })
    }

    /// Returns what was typed next, if that happens before `timeout`.
    ///
    /// # Errors
    /// If the terminal cannot be read any more.
    pub(crate) fn event(&self, timeout: Duration) -> io::Result<Option<Event>> {
        match self.events.recv_timeout(timeout) {
            Ok(read) => read.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the thread that reads the keys has ended"))
            }
        }
    }
}
