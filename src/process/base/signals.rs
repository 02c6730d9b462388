//! The signals of a program.
//!
//! SIGTERM and SIGINT stop it gracefully, however often they come; SIGQUIT,
//! or a second SIGINT, as of Ctrl-C, stops it now. SIGTSTP stops claiming, and SIGCONT starts it
//! again. SIGHUP makes a supervisor with children replace them one by one, and stops any other
//! program gracefully.
//!
//! A supervisor stops its children itself: for them, SIGHUP does nothing and a second SIGINT is the
//! first one, which a terminal sends to all of them.

use crate::clock;
use crate::error::{Error, Result};
use crate::process::base::handle::Handle;
use crate::process::base::ignored;
use crate::process::base::stop::{self, Stop};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::flag::register_usize;
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The requests that signals have made to this program so far.
#[derive(Default)]
struct SignalRequests {
    stop_at: Option<Instant>,
    now: bool,
    quiet: bool,
    /// True if the supervisor was quiet when it wrote last.
    is_supervisor_quiet: bool,
    /// True if SIGHUP replaces children instead of stopping the program.
    rolls_out: bool,
    told: Vec<Stop>,
}

static ASKED: Mutex<Option<SignalRequests>> = Mutex::new(None);

/// A SIGINT within this time after the first request belongs to it: some runners of programs pass on
/// what the terminal sends as well.
const SAME: Duration = Duration::from_secs(2);

fn with_asked<T>(work: impl FnOnce(&mut SignalRequests) -> T) -> T {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    work(asked.get_or_insert_default())
}

/// Installs the handlers, once in a program. Call it before anything is claimed or started, so that
/// a signal during the start is not lost, and no other program gets the supervisor's pipe.
pub fn install(rolls_out: bool) -> Result<()> {
    with_asked(|asked| asked.rolls_out |= rolls_out);
    static INSTALLED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let installed = || handle_signals().map_err(|error| error.to_string());
    INSTALLED
        .get_or_init(installed)
        .clone()
        .map_err(|reason| Error::Io {
            action: "install the signal handlers of",
            path: PathBuf::from("windlass"),
            source: io::Error::other(reason),
        })
}

fn handle_signals() -> io::Result<()> {
    ignored::lift();
    // Several signals at once come in the order of their numbers, so the handlers of these two note
    // which came last.
    let is_quiet = Arc::new(AtomicUsize::new(0));
    register_usize(SIGTSTP, Arc::clone(&is_quiet), 1)?;
    register_usize(SIGCONT, Arc::clone(&is_quiet), 0)?;
    let hangup = (!ignored::is_ignored(SIGHUP)).then_some(SIGHUP);
    let signals = [SIGTERM, SIGINT, SIGQUIT, SIGTSTP, SIGCONT];
    let mut signals = Signals::new(signals.into_iter().chain(hangup))?;
    if stop::is_supervised() {
        let is_quiet = stop::begins_quiet();
        with_asked(|asked| asked.is_supervisor_quiet = is_quiet);
        set_quiet(is_quiet);
        let pipe = stop::take_pipe()?;
        // The thread ends with the program, because a blocked read cannot be cancelled.
        stop::spawn("pipe", || listen(pipe)).map_err(io::Error::other)?;
    }
    let handle = move |signal| match signal {
        SIGTSTP | SIGCONT => set_quiet(is_quiet.load(Ordering::SeqCst) == 1),
        SIGHUP => hang_up(),
        SIGTERM => stop(),
        SIGINT => interrupt(),
        _ => quit(),
    };
    let handle = move || signals.forever().for_each(handle);
    stop::spawn("signals", handle).map_err(io::Error::other)?;
    Ok(())
}

/// Obeys the supervisor, until the end of its pipe, which means that it has ended or wants a stop.
fn listen(mut pipe: File) {
    let mut words = [0_u8; 64];
    while let Ok(count) = pipe.read(&mut words)
        && count > 0
    {
        for word in &words[..count] {
            match *word {
                stop::QUIET => hear(true),
                stop::RESUME => hear(false),
                _ => {}
            }
        }
    }
    stop();
}

/// Handles what the supervisor writes. It repeats itself, which must not undo what a signal has
/// requested of this program alone.
fn hear(is_quiet: bool) {
    let was_quiet = with_asked(|asked| std::mem::replace(&mut asked.is_supervisor_quiet, is_quiet));
    if was_quiet != is_quiet {
        set_quiet(is_quiet);
    }
}

/// Handles HUP.
fn hang_up() {
    let rolls_out = with_asked(|asked| {
        if asked.rolls_out {
            asked.told.iter().for_each(Stop::request_rollout);
        }
        asked.rolls_out
    });
    if stop::is_supervised() && !rolls_out {
        log::info!("SIGHUP is ignored: it is for the supervisor, which replaces this process");
    } else if !rolls_out {
        stop();
    }
}

/// Handles TERM, and HUP where it stops the program. A service manager may repeat itself.
fn stop() {
    with_asked(|asked| {
        if asked.stop_at.is_none() {
            asked.stop_at = Some(clock::instant());
            asked.told.iter().for_each(Stop::stop);
        }
    });
}

/// Handles INT. A second Ctrl-C at a terminal means that the jobs are not to be waited for.
fn interrupt() {
    let first = with_asked(|asked| asked.stop_at);
    match first {
        Some(first) if first.elapsed() >= SAME && !stop::is_supervised() => quit(),
        _ => stop(),
    }
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
pub fn forward_to(stop: &Stop) {
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

/// Passes signals on to the process of `handle`, including those that came before.
pub(crate) fn forward(handle: &Handle) {
    forward_to(&handle.stopper());
}
