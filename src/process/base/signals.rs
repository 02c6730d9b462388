//! The signals of a program. SIGTERM and SIGINT stop it gracefully; SIGQUIT, or a second SIGTERM or
//! SIGINT, stops it now. SIGTSTP stops claiming, and SIGCONT starts it again. SIGHUP makes a
//! supervisor with children replace them one by one, and stops any other program gracefully.

use crate::clock;
use crate::error::{Error, Result};
use crate::process::base::handle::Handle;
use crate::process::base::ignored::IgnoredSignals;
use crate::process::base::stop::Stop;
use crate::process::base::{environment, parent, threads};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGQUIT, SIGTSTP};
use signal_hook::iterator::Signals;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What the signals of this program have requested so far.
#[derive(Default)]
struct SignalRequests {
    stop_at: Option<Instant>,
    now: bool,
    quiet: bool,
    /// Whether SIGHUP replaces children instead of stopping the program.
    rolls_out: bool,
    told: Vec<Stop>,
}

static ASKED: Mutex<Option<SignalRequests>> = Mutex::new(None);

/// A second signal within this time counts as the first one delivered twice, as systemd delivers it
/// to a whole control group.
const SAME: Duration = Duration::from_secs(2);

fn with_asked<T>(work: impl FnOnce(&mut SignalRequests) -> T) -> T {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    work(asked.get_or_insert_default())
}

/// Installs the handlers, once in a program. Call it before anything is claimed or started, so that
/// a signal during the start is not lost.
pub(crate) fn install(rolls_out: bool) -> Result<()> {
    with_asked(|asked| asked.rolls_out |= rolls_out);
    static INSTALLED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let result = INSTALLED.get_or_init(|| {
        let ignored = IgnoredSignals::lift();
        let handled = ctrlc::try_set_handler(terminate);
        if let Err(error) = handled {
            ignored.restore();
            return Err(error.to_string());
        }
        // The handler of `ctrlc` cannot tell SIGHUP from others. Under `nohup`, it stays ignored.
        let hangup = ignored.release_hangup().then_some(SIGHUP);
        let signals = [SIGQUIT, SIGTSTP, SIGCONT].into_iter().chain(hangup);
        let mut others = Signals::new(signals).map_err(|error| error.to_string())?;
        if parent::begins_quiet() {
            set_quiet(true);
        }
        std::thread::Builder::new()
            .name("windlass-signals".to_owned())
            .spawn(move || {
                others.forever().for_each(|signal| match signal {
                    SIGTSTP => set_quiet(true),
                    SIGCONT => set_quiet(false),
                    SIGHUP => hang_up(),
                    _ => quit(),
                });
            })
            .map_err(|error| error.to_string())?;
        Ok(())
    });
    result.clone().map_err(|reason| Error::Io {
        action: "install the signal handlers of",
        path: PathBuf::from("windlass"),
        source: std::io::Error::other(reason),
    })
}

/// Handles HUP.
fn hang_up() {
    let rolls_out = with_asked(|asked| {
        if asked.rolls_out {
            asked.told.iter().for_each(Stop::request_rollout);
        }
        asked.rolls_out
    });
    if !rolls_out {
        terminate();
    }
}

/// Handles TERM or INT, and HUP where it stops the program.
fn terminate() {
    with_asked(|asked| match asked.stop_at {
        None => {
            asked.stop_at = Some(clock::instant());
            asked.told.iter().for_each(Stop::stop);
        }
        Some(first) if first.elapsed() >= SAME => {
            asked.now = true;
            asked.told.iter().for_each(Stop::stop_now);
        }
        Some(_) => {}
    });
}

fn quit() {
    with_asked(|asked| {
        asked.stop_at.get_or_insert_with(clock::instant);
        asked.now = true;
        asked.told.iter().for_each(Stop::stop_now);
    });
}

/// Makes all processes stop claiming, or claim again.
fn set_quiet(is_quiet: bool) {
    with_asked(|asked| {
        asked.quiet = is_quiet;
        asked.told.iter().for_each(|stop| stop.set_quiet(is_quiet));
    });
}

/// Returns whether a worker that starts now must not claim yet.
pub(crate) fn is_quiet() -> bool {
    with_asked(|asked| asked.quiet)
}

/// Passes signals on to a stop, including those that came before.
pub(crate) fn forward_to(stop: &Stop) {
    let stop = stop.clone();
    with_asked(|asked| {
        if asked.now {
            stop.stop_now();
        } else if asked.stop_at.is_some() {
            stop.stop();
        }
        stop.set_quiet(asked.quiet);
        asked.told.push(stop);
    });
}

/// Passes signals on to the process of `handle`, including those that came before. A supervisor's
/// child also stops at the end of its standard input.
pub(crate) fn forward(handle: &Handle) {
    forward_to(&handle.stopper());
    if parent::is_supervised() {
        // The thread ends with the program, because a blocked read cannot be cancelled.
        let _ = threads::spawn("stdin", || {
            let mut words = [0_u8; 64];
            while let Ok(count) = std::io::stdin().read(&mut words)
                && count > 0
            {
                for word in &words[..count] {
                    match *word {
                        environment::QUIET => set_quiet(true),
                        environment::RESUME => set_quiet(false),
                        _ => {}
                    }
                }
            }
            terminate();
        });
    }
}
