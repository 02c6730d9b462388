//! What wakes a poller, and whether it requests notifications.

use crate::db::conn::listening;
use crate::db::table::processes;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::worker::claim::listen_flag::{Busyness, ListenFlag};
use crossbeam_channel::{Receiver, after, never, select_biased};
use std::time::{Duration, Instant};

/// The channels that wake a poller.
pub(crate) struct Wakeups {
    /// A thread became idle.
    rested: Receiver<()>,
    /// There may be new work.
    woken: Receiver<()>,
    /// Whether the row says that the worker waits for work.
    listen_flag: ListenFlag,
    /// Whether the database notifies workers. Otherwise every commit wakes all.
    by_notification: bool,
    /// Whether the worker was woken since the queues were last found empty: then it must claim the
    /// new work, or wake others.
    is_woken: bool,
}

/// Why a wait ended that can end for several reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is a reason to look at the queues.
    Look,
    /// Jobs that were claimed ahead may have waited too long.
    Stuck,
    /// No thread has become idle for the work that woke the worker.
    PassOn,
}

/// How long a worker that was woken, and has no idle thread, waits for one before it wakes others.
const TO_PASS_ON: Duration = Duration::from_millis(1);

fn after_or_never(pause: Option<Duration>) -> Receiver<Instant> {
    pause.map_or_else(never, after)
}

impl Wakeups {
    pub(crate) fn new(rested: Receiver<()>, woken: Receiver<()>, by_notification: bool) -> Self {
        Wakeups {
            rested,
            woken,
            listen_flag: ListenFlag::default(),
            by_notification,
            is_woken: false,
        }
    }

    /// Notes whether the worker was woken since the last look.
    pub(crate) fn poll(&mut self) {
        self.is_woken |= self.woken.try_recv().is_ok();
    }

    /// Returns whether the worker was woken since the queues were last found empty.
    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken
    }

    /// Notes that the queues were found empty.
    pub(crate) fn note_drained(&mut self) {
        self.is_woken = false;
    }

    /// Wakes other workers, if this one was woken and claims no more for now.
    pub(crate) fn pass_on(&mut self, heartbeat: &Heartbeat, session: &mut Session) {
        self.poll();
        let Some(registration) = heartbeat.current().filter(|_| self.is_woken) else {
            return;
        };
        self.is_woken = false;
        if self.by_notification {
            let _ = session.run("wake other workers", |conn| {
                listening::pass_on(conn, registration.id)
            });
        }
    }

    /// Waits while the worker claims nothing.
    pub(crate) fn wait_at_gate(&mut self, stop: &Stop, pause: Duration) {
        select_biased! {
            recv(stop.channel()) -> _ => {}
            recv(stop.turned()) -> _ => {}
            recv(self.rested) -> _ => {}
            recv(self.woken) -> _ => self.is_woken = true,
            recv(after(pause)) -> _ => {}
        }
    }

    /// Waits for the end of a job, at most for `pause`.
    pub(crate) fn wait_for_end(&mut self, stop: &Stop, pause: Duration) {
        select_biased! {
            recv(stop.channel()) -> _ => {}
            recv(self.rested) -> _ => {}
            recv(after(pause)) -> _ => {}
        }
    }

    /// Waits for an idle thread. `stuck` is when to check whether jobs that were claimed ahead
    /// still wait.
    pub(crate) fn wait_for_thread(&mut self, stop: &Stop, stuck: Option<Duration>) -> Woken {
        let to_pass_on = after_or_never(self.is_woken.then_some(TO_PASS_ON));
        select_biased! {
            recv(stop.channel()) -> _ => {}
            recv(self.rested) -> _ => {}
            recv(after_or_never(stuck)) -> _ => return Woken::Stuck,
            recv(self.woken) -> _ => self.is_woken = true,
            recv(to_pass_on) -> _ => return Woken::PassOn,
        }
        Woken::Look
    }

    /// Waits for new work, at most for `pause`.
    pub(crate) fn wait_for_work(
        &mut self,
        stop: &Stop,
        stuck: Option<Duration>,
        pause: Duration,
    ) -> Woken {
        select_biased! {
            recv(stop.channel()) -> _ => {}
            recv(self.woken) -> _ => self.is_woken = true,
            recv(after_or_never(stuck)) -> _ => return Woken::Stuck,
            recv(after(pause)) -> _ => {}
        }
        Woken::Look
    }

    /// Counts a busy or an idle look, and writes the flag if it must change.
    /// Returns `true` if it changed, so that the caller looks once more.
    pub(crate) fn listen(
        &mut self,
        load: Busyness,
        heartbeat: &Heartbeat,
        session: &mut Session,
    ) -> bool {
        let (flag, Some(registration)) = (&mut self.listen_flag, heartbeat.current()) else {
            return false;
        };
        if !session.can_listen() {
            return false;
        }
        let listens = flag.after_look(registration.id, load);
        write_flag(flag, session, registration.id, listens)
    }

    /// Stops listening while the worker claims nothing, so that others are woken instead.
    pub(crate) fn listen_no_more(&mut self, heartbeat: &Heartbeat, session: &mut Session) {
        if let (flag, Some(registration)) = (&mut self.listen_flag, heartbeat.current())
            && session.can_listen()
        {
            let listens = flag.at_rest(registration.id);
            write_flag(flag, session, registration.id, listens);
        }
    }
}

/// Stores whether a registration listens, if that changes. Returns `true` if it was stored.
fn write_flag(
    flag: &mut ListenFlag,
    session: &mut Session,
    registration: i64,
    listens: Option<bool>,
) -> bool {
    let Some(listens) = listens else {
        return false;
    };
    let written = session.run("store whether it listens", |conn| {
        processes::listen(conn, registration, listens)
    });
    if written.is_ok() {
        flag.note(listens);
    }
    written.is_ok()
}
