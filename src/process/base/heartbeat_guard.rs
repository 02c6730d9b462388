//! The heartbeat thread of a process.

use crate::clock;
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

/// How long each statement may take that stores what was counted, before the row is deleted.
const PATIENCE_FOR_COUNTS: Duration = Duration::from_secs(1);

/// The pause before what was refused is stored once more.
const BEFORE_THE_SECOND: Duration = Duration::from_millis(50);

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
    /// Stores what was counted, deletes the row if it holds no claim, and then ends the heartbeat
    /// thread. This is the last step of a process, which has counted nearly everything that ended by
    /// now. A process that is killed before its row is deleted counts as a death; so what it counted is
    /// stored first.
    fn drop(&mut self) {
        self.store_first();
        let mut session = Session::new(&self.context);
        self.heartbeat.leave(&mut session);
        self.heartbeat.quiet();
        let thread = self.thread.take().into_iter().collect();
        let has_ended = threads::join_within(thread, PATIENCE_FOR_THE_LAST);
        // What ended since, or could not be stored before.
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

impl HeartbeatGuard {
    /// Stores what was counted. It tries once more if that is refused, or if the heartbeat thread is
    /// storing at present. A database that gives no answer delays it by one of its time limits.
    fn store_first(&self) {
        let session = Session::new(&self.context).within(PATIENCE_FOR_COUNTS);
        let mut session = session.in_haste(PATIENCE_FOR_COUNTS);
        if store(&self.context.history, &mut session) || session.has_missed() {
            return;
        }
        clock::nap(BEFORE_THE_SECOND);
        store(&self.context.history, &mut session);
    }
}
