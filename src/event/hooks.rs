//! Application code that runs when processes start, stop and exit.

use crate::error::{Error, Result};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The worker, dispatcher, scheduler or supervisor for which a hook is called.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// `Worker`, `Dispatcher`, `Scheduler` or `Supervisor`.
    pub kind: &'static str,
    /// The host it runs on.
    pub hostname: String,
    /// The id of the operating system process.
    pub pid: u32,
}

/// Functions to call when a process starts, stops and exits. Each kind may be added several times;
/// they run in that order.
///
/// | hook | when | where |
/// |---|---|---|
/// | [`on_start`](Hooks::on_start) | the settings and the tables were checked; nothing is registered or claimed yet | on the thread that starts it |
/// | [`on_stop`](Hooks::on_stop) | a stop has started, whatever its cause; jobs still run | during the stop, on a thread of its own |
/// | [`on_exit`](Hooks::on_exit) | everything has ended: the jobs, the heartbeat and the process row | on a thread of its own |
///
/// A process that is killed runs none. A panic in a hook is logged, and the other hooks still run.
/// The process waits up to 5 s each for the hooks of `on_stop` and of `on_exit`, then exits without
/// them.
///
/// ```
/// use windlass::Hooks;
/// let hooks = Hooks::new()
///     .on_start(|process| {
///         println!("a {} of process {} starts", process.kind, process.pid);
///         Ok(())
///     })
///     .on_stop(|_| println!("no new jobs from now on"))
///     .on_exit(|_| println!("done"));
/// # let _ = hooks;
/// ```
#[derive(Clone, Default)]
#[must_use = "hooks are called once a process has them"]
pub struct Hooks {
    start: Vec<Arc<Start>>,
    stop: Vec<Arc<HookFn>>,
    exit: Vec<Arc<HookFn>>,
}

type Start =
    dyn Fn(&ProcessInfo) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

type HookFn = dyn Fn(&ProcessInfo) + Send + Sync;

impl Hooks {
    /// Creates an empty set of hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook that runs before the process registers and claims anything. If it returns an
    /// error, the process does not start and returns [`Error::Hook`](crate::Error::Hook).
    pub fn on_start(
        mut self,
        hook: impl Fn(&ProcessInfo) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.start.push(Arc::new(hook));
        self
    }

    /// Adds a hook that runs when a stop has started, while jobs still run.
    pub fn on_stop(mut self, hook: impl Fn(&ProcessInfo) + Send + Sync + 'static) -> Self {
        self.stop.push(Arc::new(hook));
        self
    }

    /// Adds a hook that runs when everything has ended.
    pub fn on_exit(mut self, hook: impl Fn(&ProcessInfo) + Send + Sync + 'static) -> Self {
        self.exit.push(Arc::new(hook));
        self
    }

    pub(crate) fn has_stop(&self) -> bool {
        !self.stop.is_empty()
    }

    pub(crate) fn has_exit(&self) -> bool {
        !self.exit.is_empty()
    }

    /// Runs the hooks until the first error.
    pub(crate) fn run_start(&self, process: &ProcessInfo) -> Result<()> {
        for hook in &self.start {
            let refused = caught("on_start", process, || hook(process));
            if let Some(Err(source)) = refused {
                let kind = process.kind;
                return Err(Error::Hook { kind, source });
            }
        }
        Ok(())
    }

    pub(crate) fn run_stop(&self, process: &ProcessInfo) {
        for hook in &self.stop {
            caught("on_stop", process, || hook(process));
        }
    }

    pub(crate) fn run_exit(&self, process: &ProcessInfo) {
        for hook in &self.exit {
            caught("on_exit", process, || hook(process));
        }
    }
}

/// Returns `None` if it panicked, which is logged and stops there.
fn caught<T>(hook: &str, process: &ProcessInfo, work: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(work));
    let payload: Box<dyn Any + Send> = match result {
        Ok(done) => return Some(done),
        Err(payload) => payload,
    };
    let kind = process.kind;
    log::error!(hook, kind; "a hook of {hook} panicked; the {kind} continues");
    // The payload's own destructor may panic as well.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    None
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("start", &self.start.len())
            .field("stop", &self.stop.len())
            .field("exit", &self.exit.len())
            .finish()
    }
}
