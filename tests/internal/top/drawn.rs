//! The screen, line by line.

use super::examples::{findings, snapshot, state};
use crate::cli::top::reader::{ReadAnswer, ReadPart, ReadRequest, Snapshot};
use crate::cli::top::state::{TopState, press};
use crate::cli::top::view::{TopTheme, draw};
use crate::clock;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use std::time::{Duration, Instant};

const PLAIN: TopTheme = TopTheme { has_colors: false };

fn drawn(state: &mut TopState, size: (u16, u16), theme: TopTheme, now: Instant) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal
        .draw(|frame| draw(frame, state, theme, now))
        .unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of the screen, with a mark after each that is selected.
fn lines(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        for x in 0..buffer.area.width {
            text += buffer[(x, y)].symbol();
        }
        text = text.trim_end().to_owned();
        text.push('\n');
    }
    text
}

fn assert_drawn(name: &str, state: &mut TopState, size: (u16, u16), now: Instant) {
    let text = lines(&drawn(state, size, PLAIN, now));
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn key(state: &mut TopState, letter: char, now: Instant) {
    press(
        state,
        KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE),
        now,
    );
}

#[test]
fn the_overview_fits_a_small_terminal() {
    let (mut state, now) = state();
    assert_drawn("small", &mut state, (80, 24), now);
}

#[test]
fn a_large_terminal_shows_all() {
    let (mut state, now) = state();
    assert_drawn("large", &mut state, (132, 40), now);
}

#[test]
fn the_focused_pane_gets_the_space() {
    let (mut state, now) = state();
    press(
        &mut state,
        KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE),
        now,
    );
    for _ in 0..3 {
        key(&mut state, 'j', now);
    }
    assert_drawn("processes", &mut state, (80, 24), now);
}

#[test]
fn an_outage_is_named_and_the_last_snapshot_stays() {
    let (mut state, now) = state();
    state.asked(ReadRequest::Snapshot, now + Duration::from_secs(2));
    let later = now + Duration::from_secs(4);
    let reason = "connection refused\nis the server running?".to_owned();
    state.take(ReadAnswer::Away(reason), later);
    let later = now + Duration::from_secs(16);
    assert_drawn("away", &mut state, (80, 24), later);
    state.take(ReadAnswer::Snapshot(Box::new(snapshot(later))), later);
    let text = lines(&drawn(&mut state, (80, 24), PLAIN, later));
    assert!(!text.contains("away"), "{text}");
}

#[test]
fn an_answer_that_does_not_come_is_an_outage() {
    let (mut state, now) = state();
    let asked = now + Duration::from_secs(2);
    state.asked(ReadRequest::Snapshot, asked);
    state.notice(asked + Duration::from_secs(4));
    assert!(state.away.is_none());
    let later = asked + Duration::from_secs(9);
    state.notice(later);
    let text = lines(&drawn(&mut state, (80, 24), PLAIN, later));
    assert!(
        text.contains(" database away since 12:00:02 UTC (9.0s): no answer"),
        "{text}"
    );
}

#[test]
fn the_findings_and_the_help_cover_the_panes() {
    let (mut state, now) = state();
    key(&mut state, 'd', now);
    state.take(ReadAnswer::Findings(findings(now)), now);
    assert_drawn("findings", &mut state, (80, 24), now);
    key(&mut state, '?', now);
    assert_drawn("help", &mut state, (80, 24), now);
}

#[test]
fn nothing_is_said_to_be_nothing() {
    let now = clock::instant();
    let mut state = TopState::new("jobs.db".to_owned(), Duration::from_secs(2), now);
    let text = lines(&drawn(&mut state, (80, 24), PLAIN, now));
    assert!(text.contains("looking for the first time"), "{text}");
    for claim in ["no queue has", "no process is", "no job has"] {
        assert!(!text.contains(claim), "nothing is known yet: {text}");
    }
    let empty = Snapshot {
        totals: ReadPart::Late,
        queues: ReadPart::Read(Default::default()),
        fleet: ReadPart::Read(Default::default()),
        curves: ReadPart::Read(Default::default()),
        failures: ReadPart::Failed("cannot group the failed jobs: no".to_owned()),
        ..snapshot(now)
    };
    state.take(ReadAnswer::Snapshot(Box::new(empty)), now);
    assert_drawn("nothing", &mut state, (80, 24), now);
}

#[test]
fn a_narrow_terminal_keeps_the_names() {
    let (mut state, now) = state();
    let text = lines(&drawn(&mut state, (41, 24), PLAIN, now));
    for shown in ["mail", "reports", "webhooks", "no worker", "8,310"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(!text.contains("PER MIN"), "{text}");
}

#[test]
fn no_size_is_too_small() {
    let (mut state, now) = state();
    for width in [0, 1, 2, 39, 40, 41, 79, 300] {
        for height in [0, 1, 2, 9, 10, 11, 23, 100] {
            for letter in ['?', 'd', 'd'] {
                drawn(&mut state, (width, height), PLAIN, now);
                key(&mut state, letter, now);
            }
        }
    }
    let text = lines(&drawn(&mut state, (39, 9), PLAIN, now));
    assert!(
        text.starts_with("This terminal is too small; 80 columns"),
        "{text}"
    );
}

#[test]
fn no_color_is_no_color() {
    let (mut state, now) = state();
    let colors = |buffer: &Buffer| {
        let cells = buffer.content().iter();
        cells
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    for letter in ['p', 'd', '?', '?'] {
        assert_eq!(colors(&drawn(&mut state, (80, 24), PLAIN, now)), 0);
        let colored = TopTheme { has_colors: true };
        assert!(colors(&drawn(&mut state, (80, 24), colored, now)) > 10);
        key(&mut state, letter, now);
    }
}

#[test]
fn nothing_on_the_screen_can_move_the_cursor() {
    let (mut state, now) = state();
    let buffer = drawn(&mut state, (132, 40), PLAIN, now);
    let is_control = |symbol: &str| symbol.chars().any(char::is_control);
    assert!(
        !buffer
            .content()
            .iter()
            .any(|cell| is_control(cell.symbol()))
    );
    assert!(
        lines(&buffer).contains(r"evil \u{1b}[2J🦀"),
        "{}",
        lines(&buffer)
    );
}
