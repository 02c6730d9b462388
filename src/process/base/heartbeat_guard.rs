//! The heartbeat thread of a process.

use crate::error::Result;
use crate::process::base::context::ProcessContext;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::history::store::store;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::base::threads;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a heartbeat may continue when the process ends.
const PATIENCE_FOR_THE_LAST: Duration = Duration::from_secs(3);

/// A running heartbeat thread, which ends when this is dropped: the row of a process must get no
/// heartbeats without the process.
#[derive(Debug)]
pub(crate) struct HeartbeatGuard {
    context: ProcessContext,
    heartbeat: Arc<Heartbeat>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatGuard {
    /// Starts the heartbeat thread. It calls `each` after each heartbeat, on the same connection,
    /// with all registrations.
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
    /// Deletes the row if it holds no claim, and then ends the heartbeat thread. This is the last
    /// step of a process, which has counted everything that ended by now.
    fn drop(&mut self) {
        let mut session = Session::new(&self.context);
        self.heartbeat.leave(&mut session);
        self.heartbeat.quiet();
        let thread = self.thread.take().into_iter().collect();
        let has_ended = threads::join_within(thread, PATIENCE_FOR_THE_LAST);
        // Not what the heartbeat thread is storing at present.
        if !session.is_in_trouble() {
            store(&self.context.history, &mut session);
        }
        if !has_ended {
            return;
        }
        // A registration may have been under way when the stop was requested.
        self.heartbeat.deregister(&mut session);
    }
}
