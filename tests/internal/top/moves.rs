//! Changes of the state by keys and answers.

use super::examples::{snapshot, state};
use crate::cli::top::reader::{ReadAnswer, ReadRequest};
use crate::cli::top::state::{KeyEffect, Overlay, Pane, TopState, press};
use crate::clock;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn letter(letter: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)
}

fn control(letter: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)
}

#[test]
fn keys_do_what_the_help_names() {
    let (mut state, now) = state();
    assert_eq!(press(&mut state, letter('q'), now), KeyEffect::Quit);
    assert_eq!(press(&mut state, control('c'), now), KeyEffect::Quit);
    assert_eq!(press(&mut state, control('z'), now), KeyEffect::Suspend);
    assert_eq!(press(&mut state, control('l'), now), KeyEffect::Redraw);
    let tab = KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE);
    for pane in [Pane::Processes, Pane::Failures, Pane::Queues] {
        press(&mut state, tab, now);
        assert_eq!(state.pane, pane);
    }
    press(
        &mut state,
        KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT),
        now,
    );
    assert_eq!(state.pane, Pane::Failures);
    for overlay in [Overlay::Help, Overlay::None, Overlay::Help] {
        press(&mut state, letter('?'), now);
        assert_eq!(state.overlay, overlay);
    }
    press(&mut state, letter('d'), now);
    assert_eq!(state.overlay, Overlay::Findings);
    press(
        &mut state,
        KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE),
        now,
    );
    assert_eq!(state.overlay, Overlay::None);
}

#[test]
fn the_selection_stays_within_the_lines() {
    let (mut state, now) = state();
    state.lines = [5, 0, 2, 0];
    let mut at = |key: KeyCode, pane: Pane| {
        state.pane = pane;
        press(&mut state, KeyEvent::new(key, KeyModifiers::NONE), now);
        state.selected[pane.index()]
    };
    assert_eq!(at(KeyCode::Up, Pane::Queues), 0);
    assert_eq!(at(KeyCode::Down, Pane::Queues), 1);
    assert_eq!(at(KeyCode::PageDown, Pane::Queues), 4);
    assert_eq!(at(KeyCode::Char('k'), Pane::Queues), 3);
    assert_eq!(at(KeyCode::Home, Pane::Queues), 0);
    assert_eq!(at(KeyCode::Char('G'), Pane::Queues), 4);
    assert_eq!(at(KeyCode::Char('j'), Pane::Processes), 0);
    assert_eq!(at(KeyCode::End, Pane::Failures), 1);
}

#[test]
fn one_thing_is_asked_for_at_a_time() {
    let now = clock::instant();
    let mut state = TopState::new("jobs.db".to_owned(), 2 * SECOND, now);
    assert_eq!(state.request(now), Some(ReadRequest::Snapshot));
    state.asked(ReadRequest::Snapshot, now);
    assert_eq!(
        state.request(now + 60 * SECOND),
        None,
        "it has not answered"
    );
    state.take(ReadAnswer::Snapshot(Box::new(snapshot(now))), now);
    assert_eq!(
        state.request(now),
        Some(ReadRequest::Findings),
        "once at the start"
    );
    state.asked(ReadRequest::Findings, now);
    state.take(ReadAnswer::Findings(super::examples::findings(now)), now);
    assert_eq!(state.request(now + SECOND), None, "it is not due");
    assert_eq!(state.request(now + 2 * SECOND), Some(ReadRequest::Snapshot));
}

#[test]
fn a_frozen_screen_asks_for_nothing() {
    let (mut state, now) = state();
    press(&mut state, letter('p'), now);
    state.asked(ReadRequest::Findings, now);
    state.take(ReadAnswer::Findings(super::examples::findings(now)), now);
    assert_eq!(state.request(now + 600 * SECOND), None);
    press(&mut state, letter('d'), now);
    assert_eq!(
        state.request(now),
        Some(ReadRequest::Findings),
        "they were asked for"
    );
    state.asked(ReadRequest::Findings, now);
    state.take(ReadAnswer::Findings(super::examples::findings(now)), now);
    press(&mut state, letter('p'), now);
    assert_eq!(state.request(now), Some(ReadRequest::Snapshot));
}

#[test]
fn an_outage_is_not_asked_faster() {
    let (mut state, now) = state();
    state.asked(ReadRequest::Snapshot, now);
    let later = now + 3 * SECOND;
    state.take(ReadAnswer::Away("gone".to_owned()), later);
    assert_eq!(state.request(later), Some(ReadRequest::Findings));
    state.asked(ReadRequest::Findings, later);
    state.take(ReadAnswer::Away("gone".to_owned()), later);
    assert_eq!(state.request(later + SECOND), None);
    assert_eq!(
        state.request(later + 2 * SECOND),
        Some(ReadRequest::Snapshot)
    );
    assert_eq!(
        state.away.as_ref().unwrap().at,
        now,
        "since it was first noticed"
    );
}
