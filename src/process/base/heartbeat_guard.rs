//! The heartbeat thread of a process.

use crate::error::Result;
use crate::process::base::context::ProcessContext;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::base::threads;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// For a heartbeat under way when a process ends.
const PATIENCE_FOR_THE_LAST: Duration = Duration::from_secs(3);

/// A heartbeat thread that runs, and ends when this is dropped: the row of a
/// process must get no heartbeats without it.
#[derive(Debug)]
pub(crate) struct HeartbeatGuard {
    context: ProcessContext,
    heartbeat: Arc<Heartbeat>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatGuard {
    /// Starts the heartbeat thread. `each` is done after each heartbeat, on the
    /// same connection, with all registrations.
    pub(crate) fn start(
        context: &ProcessContext,
        heartbeat: &Arc<Heartbeat>,
        each: impl FnMut(&mut Session, &[Arc<Registration>]) + Send + 'static,
    ) -> Result<Self> {
        let thread = threads::spawn_vital("heartbeat", &context.stop, {
            let heartbeat = Arc::clone(heartbeat);
            move || heartbeat.run(each)
        })?;
        Ok(HeartbeatGuard {
            context: context.clone(),
            heartbeat: Arc::clone(heartbeat),
            thread: Some(thread),
        })
    }
}

impl Drop for HeartbeatGuard {
    /// The row goes if it holds no claim, and then its heartbeat stops: the
    /// last thing of all that a process does.
    fn drop(&mut self) {
        let mut session = Session::new(&self.context);
        self.heartbeat.leave(&mut session);
        self.heartbeat.quiet();
        let thread = self.thread.take().into_iter().collect();
        if !threads::join_within(thread, PATIENCE_FOR_THE_LAST) {
            return;
        }
        // A registration that was under way when the stop came.
        self.heartbeat.deregister(&mut session);
    }
}
