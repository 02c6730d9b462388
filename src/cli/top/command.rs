//! `windlass top`.

use crate::cli::top::keyboard::Keyboard;
use crate::cli::top::keys::{self, KeyEffect};
use crate::cli::top::reader::LookReader;
use crate::cli::top::sampler::Sampler;
use crate::cli::top::screen::Screen;
use crate::cli::top::signals::{self, TopSignals};
use crate::cli::top::state::TopState;
use crate::cli::top::view::{self, TopTheme};
use crate::clock;
use crate::db::Database;
use crate::error::{Error, Result};
use ratatui::crossterm::event::Event;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Show the overview in a terminal, and keep it up to date
///
/// Queues with their verdicts, processes with what their threads run, the last hour, and the newest
/// failures. It only reads, each part within 1 s, and changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quit, Tab next pane, j/k or arrows move, p freeze, d findings of doctor, ? help.

Examples:
  windlass top --database sqlite://jobs.db
  windlass top --every 10s
  NO_COLOR=1 windlass top")]
pub(crate) struct TopCommand {
    /// The time between two looks, from 1s to 1d
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    every: Duration,
}

/// How long the loop waits for a key before it looks at everything else.
const TICK: Duration = Duration::from_millis(100);

/// How often the screen is drawn if nothing changes: it shows ages.
const REDRAW: Duration = Duration::from_secs(1);

/// The longest time between two looks.
const SELDOM: Duration = Duration::from_secs(86_400);

fn interval(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if every < Duration::from_secs(1) {
        return Err("the shortest is 1s".to_owned());
    }
    if every > SELDOM {
        return Err("the longest is 1d".to_owned());
    }
    Ok(every)
}

impl TopCommand {
    pub(crate) fn run(&self, database: &Database) -> Result<ExitCode> {
        if !io::stdout().is_terminal() {
            return Err(Error::Settings(
                "`windlass top` needs a terminal as its output; `windlass status --json` prints the \
                 queues and processes for programs"
                    .to_owned(),
            ));
        }
        let reader = LookReader::open(database)?;
        let state = TopState::new(database.target(), self.every, clock::instant());
        // Log lines would be drawn over; what matters is on the screen.
        log::set_max_level(log::LevelFilter::Off);
        show(reader, state).map_err(|source| Error::Io {
            action: "use",
            path: PathBuf::from("the terminal"),
            source,
        })
    }
}

/// Shows the screen until it is left.
fn show(reader: LookReader, mut state: TopState) -> io::Result<ExitCode> {
    let sampler = Sampler::start(reader).map_err(io::Error::other)?;
    let signals = TopSignals::listen()?;
    let theme = TopTheme::of_environment();
    let mut screen = Screen::open()?;
    let keyboard = Keyboard::start().map_err(io::Error::other)?;
    let mut drawn_at: Option<Instant> = None;
    loop {
        if let Some(signal) = signals.end() {
            drop(screen);
            signals::obey(signal);
            return Ok(ExitCode::FAILURE);
        }
        if signals.takes_suspend() {
            screen.without(signals::suspend)?;
            drawn_at = None;
            // It was sent to continue this program.
            signals.takes_resumed();
        }
        if signals.takes_resumed() {
            screen.retake()?;
            drawn_at = None;
        }
        let now = clock::instant();
        if talk(&sampler, &mut state, now) {
            drawn_at = None;
        }
        if drawn_at.is_none_or(|at| now.saturating_duration_since(at) >= REDRAW) {
            screen.draw(|frame| view::draw(frame, &mut state, theme, now))?;
            drawn_at = Some(now);
        }
        if let Some(event) = keyboard.event(TICK)? {
            match effect(&mut state, &event) {
                KeyEffect::Quit => return Ok(ExitCode::SUCCESS),
                KeyEffect::Suspend => screen.without(signals::suspend)?,
                KeyEffect::Redraw => screen.retake()?,
                KeyEffect::Stay => {}
            }
            drawn_at = None;
        }
    }
}

fn effect(state: &mut TopState, event: &Event) -> KeyEffect {
    match event {
        Event::Key(key) => keys::press(state, *key, clock::instant()),
        // A new size, for example: it is drawn again.
        _ => KeyEffect::Stay,
    }
}

/// Takes answers, and asks for what is due. Returns whether anything changed.
fn talk(sampler: &Sampler, state: &mut TopState, now: Instant) -> bool {
    let was_away = state.away.is_some();
    let mut has_changed = false;
    while let Some(answer) = sampler.answer() {
        state.take(answer, now);
        has_changed = true;
    }
    state.notice(now);
    if let Some(request) = state.request(now)
        && sampler.ask(request)
    {
        state.asked(request, now);
    }
    has_changed || was_away != state.away.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_looks_is_bounded() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("1day"), Ok(SELDOM));
        for wrong in ["0s", "999ms", "1day 1s", "500000000000years", "2"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
