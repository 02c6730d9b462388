//! Calls the hooks of a process.

use crate::clock;
use crate::error::Result;
use crate::event::hooks::{Hooks, ProcessInfo};
use crate::process::base::registration::hostname;
use crate::process::base::stop::{self, Stop};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the end of a process waits for its hooks.
const PATIENCE: Duration = Duration::from_secs(5);

/// The hooks of one process.
#[derive(Debug, Clone)]
pub(crate) struct Hooked {
    hooks: Hooks,
    process: ProcessInfo,
}

impl Hooked {
    pub(crate) fn new(hooks: &Hooks, kind: &'static str) -> Self {
        Hooked {
            hooks: hooks.clone(),
            process: ProcessInfo {
                kind,
                hostname: hostname(),
                pid: std::process::id(),
            },
        }
    }

    pub(crate) fn start(&self) -> Result<()> {
        self.hooks.run_start(&self.process)
    }

    /// Starts a thread that waits for the stop and then calls the stop hooks.
    pub(crate) fn await_stop(&self, stop: &Stop) -> Option<JoinHandle<()>> {
        if !self.hooks.has_stop() {
            return None;
        }
        self.aside("stop-hooks", {
            let (own, stop) = (self.clone(), stop.clone());
            move || {
                let _ = stop.channel().recv();
                own.hooks.run_stop(&own.process);
            }
        })
    }

    /// Calls the exit hooks, when everything else has ended.
    pub(crate) fn exit(&self, awaiting: Option<JoinHandle<()>>, stop: &Stop) {
        self.wait_for(awaiting, stop);
        if self.hooks.has_exit() {
            let own = self.clone();
            let exit = self.aside("exit-hooks", move || own.hooks.run_exit(&own.process));
            self.wait_for(exit, stop);
        }
    }

    fn aside(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
        let kind = self.process.kind;
        stop::spawn(name, work)
            .inspect_err(|error| log::error!(kind; "hooks of the {kind} are not called: {error}"))
            .ok()
    }

    fn wait_for(&self, hooks: Option<JoinHandle<()>>, stop: &Stop) {
        let deadline = clock::deadline(PATIENCE);
        let kind = self.process.kind;
        if !stop::join_until(&mut hooks.into_iter().collect(), deadline, stop, || false) {
            log::error!(kind; "hooks of the {kind} have not returned; it ends without them");
        }
    }
}
