//! `windlass top`: the overview in a terminal, kept up to date.
//!
//! A thread of its own reads; the keys wait for nothing but the terminal.

pub(crate) mod reader;
pub(crate) mod state;
pub(crate) mod view;

use crate::cli::top::reader::{Sampler, SnapshotReader};
use crate::cli::top::state::{KeyEffect, Keyboard, TopState};
use crate::cli::top::view::TopTheme;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::Event;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use std::io::{self, IsTerminal as _, Stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use windlass::internal::clock;
use windlass::{Database, Error, Result};

#[cfg(test)]
#[cfg(feature = "internal-tests")]
#[path = "../../../../../tests/internal/top/mod.rs"]
mod internal_tests;

// --- `windlass top` ---

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

/// The longest wait for a key before the loop looks at everything else.
const TICK: Duration = Duration::from_millis(100);

/// The time between two drawings of the screen if nothing changes: it shows ages.
const REDRAW: Duration = Duration::from_secs(1);

/// The longest time between two snapshots.
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
        let reader = SnapshotReader::open(database)?;
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
fn show(reader: SnapshotReader, mut state: TopState) -> io::Result<ExitCode> {
    let sampler = Sampler::start(reader).map_err(io::Error::other)?;
    let signals = TopSignals::listen()?;
    let theme = TopTheme::of_environment();
    let mut screen = Screen::open()?;
    let keyboard = Keyboard::start().map_err(io::Error::other)?;
    let mut drawn_at: Option<Instant> = None;
    loop {
        if let Some(signal) = signals.end() {
            drop(screen);
            obey(signal);
            return Ok(ExitCode::FAILURE);
        }
        if signals.takes_suspend() {
            screen.without(suspend)?;
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
                KeyEffect::Suspend => screen.without(suspend)?,
                KeyEffect::Redraw => screen.retake()?,
                KeyEffect::Stay => {}
            }
            drawn_at = None;
        }
    }
}

fn effect(state: &mut TopState, event: &Event) -> KeyEffect {
    match event {
        Event::Key(key) => state::press(state, *key, clock::instant()),
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

// --- Signals, as flags that the loop of the screen checks ---

/// The signals that came.
#[derive(Debug, Default)]
pub(crate) struct TopSignals {
    /// The number of the one that ends the program; zero if none came.
    end: Arc<AtomicUsize>,
    suspend: Arc<AtomicBool>,
    resumed: Arc<AtomicBool>,
}

impl TopSignals {
    /// Notes signals from now on.
    ///
    /// # Errors
    /// If the system refuses a handler.
    pub(crate) fn listen() -> io::Result<Self> {
        let signals = TopSignals::default();
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let number = usize::try_from(signal).unwrap_or_default();
            flag::register_usize(signal, Arc::clone(&signals.end), number)?;
        }
        flag::register(SIGTSTP, Arc::clone(&signals.suspend))?;
        flag::register(SIGCONT, Arc::clone(&signals.resumed))?;
        Ok(signals)
    }

    /// Returns the signal that ends the program.
    pub(crate) fn end(&self) -> Option<i32> {
        let number = self.end.load(Ordering::SeqCst);
        i32::try_from(number).ok().filter(|number| *number != 0)
    }

    /// Returns whether the program is to stop for a while, once.
    pub(crate) fn takes_suspend(&self) -> bool {
        self.suspend.swap(false, Ordering::SeqCst)
    }

    /// Returns whether the program was continued, once: another program may have used the terminal.
    pub(crate) fn takes_resumed(&self) -> bool {
        self.resumed.swap(false, Ordering::SeqCst)
    }
}

/// Does what the signal does to other programs.
pub(crate) fn obey(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

/// Stops this program until it is continued.
pub(crate) fn suspend() {
    obey(SIGTSTP);
}

// --- The terminal: taken for the screen, and given back as it was, whatever ends the program ---

/// True while the terminal is in use.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal of this program.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal. It is given back when this is dropped, and before a panic is reported.
    ///
    /// # Errors
    /// If standard output or standard input is no terminal.
    pub(crate) fn open() -> io::Result<Self> {
        give_back_on_panic();
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        match terminal {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// If the terminal has gone, or was given back because a thread panicked.
    pub(crate) fn draw(&mut self, content: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !IS_TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other("a thread of this program panicked"));
        }
        self.terminal.draw(content).map(drop)
    }

    /// Gives the terminal back while `body` runs, and draws everything anew afterwards.
    ///
    /// # Errors
    /// If the terminal has gone.
    pub(crate) fn without(&mut self, body: impl FnOnce()) -> io::Result<()> {
        give_back();
        body();
        self.retake()
    }

    /// Takes the terminal once more: another program may have used it.
    ///
    /// # Errors
    /// If the terminal has gone.
    pub(crate) fn retake(&mut self) -> io::Result<()> {
        // Its modes may have changed, which only a new start finds out.
        give_back();
        take()?;
        // `clear` of the old one would ask the terminal where its cursor is, and fail without an answer.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::SeqCst);
    let entered = execute!(
        io::stdout(),
        EnterAlternateScreen,
        Clear(ClearType::All),
        Hide
    );
    entered.inspect_err(|_| give_back())
}

/// Gives the terminal back, once. Errors are of a terminal that has gone.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn give_back_on_panic() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            previous(info);
        }));
    });
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Screen")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_snapshots_is_bounded() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("1day"), Ok(SELDOM));
        for wrong in ["0s", "999ms", "1day 1s", "500000000000years", "2"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
