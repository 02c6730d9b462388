//! A server that runs.

use crate::process::base::stop;
use crate::web::site::Site;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// How long a stop may take before its threads are left to themselves.
const STOP: Duration = Duration::from_secs(10);

/// A server that runs on threads of this program. Dropping it stops it.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    pub(crate) site: Arc<Site>,
    threads: Vec<JoinHandle<()>>,
}

impl RunningServer {
    pub(crate) fn new(
        address: SocketAddr,
        stop: watch::Sender<bool>,
        site: Arc<Site>,
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        RunningServer {
            address,
            stop,
            site,
            threads,
        }
    }

    /// Returns the address on which it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests a stop and returns at once. Responses that are under way are completed, for up to
    /// 3 s.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        self.site.hub.stop();
        self.site.waits.stop();
        // If one is on its way already, that one wakes it.
        let _ = self.site.operations.try_send(());
    }

    /// Returns whether all its threads run: after a defect, some do not.
    pub fn is_running(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits until the server has ended.
    pub fn wait(mut self) {
        for thread in self.threads.drain(..) {
            stop::join(thread);
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop();
        stop::join_within(self.threads.drain(..).collect(), STOP);
    }
}
