//! Signals, as flags that the loop of the screen looks at.

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
