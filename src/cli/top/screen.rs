//! The terminal: taken for the screen, and given back as it was, whatever ends the program.

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use std::io::{self, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is in use.
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
