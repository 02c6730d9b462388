//! The thread that reads the terminal. The library that reads it never returns once the terminal
//! has been taken away, so nothing waits for this thread.

use crate::error::Result;
use crate::process::base::stop;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use ratatui::crossterm::event::{self, Event};
use std::io;
use std::time::Duration;

/// The thread, by its channel.
#[derive(Debug)]
pub(crate) struct Keyboard {
    events: Receiver<io::Result<Event>>,
}

/// How many keys may be typed ahead; more wait in the terminal.
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
