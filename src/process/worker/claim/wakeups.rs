//! The events that wake a poller, and its requests for notifications.

use crate::clock::{self, RetryDelay};
use crate::db::conn::listening::{self, Listener};
use crate::db::table::processes;
use crate::event::Event;
use crate::process::base::context::ProcessContext;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crossbeam_channel::{Receiver, Sender, after, never, select_biased};
use std::time::{Duration, Instant};

/// The channels that wake a poller.
pub(crate) struct Wakeups {
    /// A thread became idle.
    rested: Receiver<()>,
    /// There may be new work.
    woken: Receiver<()>,
    /// The flag by which the worker asks to be notified, as its row has it.
    listen_flag: ListenFlag,
    /// True if the database notifies workers. Otherwise every commit wakes all.
    by_notification: bool,
    /// True if the worker was woken since the queues were last found empty: then it must claim the
    /// new work, or wake others.
    is_woken: bool,
    /// Since when it has heard of all new work, except that of transactions which were open then. It
    /// is the first empty look after it began to listen; without notifications, after the last job.
    hears_since: Option<Instant>,
}

/// Why a wait ended that can end for several reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// There is a reason to poll the queues.
    Poll,
    /// There may be new work.
    Work,
    /// Jobs that were claimed ahead may have waited too long.
    Stuck,
    /// No thread has become idle for the work that woke the worker.
    PassOn,
}

/// The time that a woken worker without an idle thread waits for one before it wakes others.
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
            hears_since: None,
        }
    }

    /// Returns for how long the worker has heard of all new work. It has just found none.
    pub(crate) fn hears_for(&mut self) -> Duration {
        self.hears_since
            .get_or_insert_with(clock::instant)
            .elapsed()
    }

    /// Notes that jobs were found. Where nothing is heard, others may follow soon.
    pub(crate) fn note_found(&mut self, session: &Session) {
        if !session.can_listen() {
            self.hears_since = None;
        }
    }

    /// Notes whether the worker was woken since the last poll.
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
        Woken::Poll
    }

    /// Notes that there may be new work.
    pub(crate) fn note_woken(&mut self) {
        self.is_woken = true;
    }

    /// Returns the wait for new work, at most for `pause`.
    pub(crate) fn wait_for_work(
        &self,
        stop: &Stop,
        stuck: Option<Duration>,
        pause: Duration,
    ) -> WorkWait {
        WorkWait {
            stop: stop.clone(),
            woken: self.woken.clone(),
            stuck,
            pause,
        }
    }

    /// Counts a busy or an idle poll, and writes the flag if it must change.
    /// Returns `true` if it changed, so that the caller polls once more.
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
        if flag.registration != registration.id {
            self.hears_since = None;
        }
        let listens = flag.after_poll(registration.id, load);
        let is_written = write_flag(flag, session, registration.id, listens);
        if is_written {
            self.hears_since = None;
        }
        is_written
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

/// A wait of an idle worker. It borrows nothing, so that another thread may claim meanwhile.
pub(crate) struct WorkWait {
    stop: Stop,
    woken: Receiver<()>,
    stuck: Option<Duration>,
    pause: Duration,
}

impl WorkWait {
    pub(crate) fn wait(self) -> Woken {
        select_biased! {
            recv(self.stop.channel()) -> _ => Woken::Poll,
            recv(self.woken) -> _ => Woken::Work,
            recv(after_or_never(self.stuck)) -> _ => Woken::Stuck,
            recv(after(self.pause)) -> _ => Woken::Poll,
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

// --- The flag by which a worker asks to be notified ---

/// The value of that flag in this process' row. NOTIFY makes commits wait for each other, so a
/// worker that is busy anyway does not listen.
#[derive(Debug, Default)]
pub(crate) struct ListenFlag {
    /// The registration that the flag was written to. A new registration listens.
    registration: i64,
    is_off: bool,
    full_claims: u32,
}

/// The load that a poll of the queues found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busyness {
    /// Enough jobs for all threads.
    Busy,
    /// Fewer jobs.
    Idle,
}

/// After how many claims in a row that found enough jobs the process stops listening.
const FULL_CLAIMS: u32 = 3;

impl ListenFlag {
    /// Counts a busy or an idle poll of a registration. Returns the new value for its row, or `None`
    /// if that does not change.
    pub(crate) fn after_poll(&mut self, registration: i64, load: Busyness) -> Option<bool> {
        if self.registration != registration {
            *self = ListenFlag {
                registration,
                ..ListenFlag::default()
            };
        }
        let idle = load == Busyness::Idle;
        self.full_claims = if idle { 0 } else { self.full_claims + 1 };
        let off = !idle && (self.is_off || self.full_claims >= FULL_CLAIMS);
        (off != self.is_off).then_some(!off)
    }

    /// Notes that the process claims nothing for a while. Returns the new value for its row, or
    /// `None` if that does not change.
    pub(crate) fn at_rest(&mut self, registration: i64) -> Option<bool> {
        *self = ListenFlag {
            registration,
            is_off: self.is_off && self.registration == registration,
            full_claims: FULL_CLAIMS,
        };
        (!self.is_off).then_some(false)
    }

    /// Notes that the value was written.
    pub(crate) fn note(&mut self, listens: bool) {
        self.is_off = !listens;
    }
}

// --- The thread that receives notifications of new work and wakes the poller ---

/// The time within which a stop is noticed, and the longest time that reopening a lost listener may
/// take.
const WAIT: Duration = Duration::from_millis(200);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Runs until stopped. A missed notification costs one polling interval. `claim` looks for work on this thread, and
/// returns `false` if the poller must look.
pub(crate) fn run(
    context: &ProcessContext,
    heartbeat: &Heartbeat,
    wake: &Sender<()>,
    claim: impl Fn() -> bool,
) {
    let stop = &context.stop;
    let mut backoff = RetryDelay::up_to(LONGEST_PAUSE);
    let mut is_down = false;
    while !stop.is_stopped() {
        let channel = heartbeat.channel();
        match context.database.listen(channel.as_deref()) {
            Ok(Listener::Polling) => {
                let _ = stop.channel().recv();
            }
            Ok(mut listener) => {
                backoff.reset();
                is_down = false;
                // Notifications from before it listened are lost.
                let _ = wake.try_send(());
                let is_current = || heartbeat.channel() == channel;
                hear(&mut listener, stop, is_current, || {
                    if !claim() {
                        // A full channel already wakes the poller, also for this notification.
                        let _ = wake.try_send(());
                    }
                });
                if !is_current() {
                    continue;
                }
            }
            Err(error) if !is_down => {
                is_down = true;
                context.subscriber.emit(&Event::Unreachable {
                    action: "listen for new work",
                    reason: &error.to_string(),
                });
            }
            Err(_) => {}
        }
        stop.wait(backoff.delay());
    }
}

/// Listens until stopped, until the connection is lost, or while the channel is current.
fn hear(listener: &mut Listener, stop: &Stop, is_current: impl Fn() -> bool, heard: impl Fn()) {
    while !stop.is_stopped() && is_current() {
        match listener.wait(WAIT) {
            Ok(true) => heard(),
            Ok(false) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Busyness::{Busy, Idle};
    use super::*;

    /// Counts polls and notes each result; returns the value of the row after each.
    fn polls(
        listen_flag: &mut ListenFlag,
        registration: i64,
        loads: &[Busyness],
    ) -> Vec<Option<bool>> {
        let poll = |load: &Busyness| {
            let listens = listen_flag.after_poll(registration, *load);
            listens.inspect(|listens| listen_flag.note(*listens))
        };
        loads.iter().map(poll).collect()
    }

    #[test]
    fn a_busy_worker_does_not_listen() {
        let mut listen_flag = ListenFlag::default();
        let said = polls(&mut listen_flag, 1, &[Idle, Busy, Busy, Busy, Busy, Idle]);
        assert_eq!(said, [None, None, None, Some(false), None, Some(true)]);
    }

    #[test]
    fn at_rest_it_stops_listening_at_once() {
        let mut listen_flag = ListenFlag::default();
        assert_eq!(listen_flag.at_rest(1), Some(false));
        listen_flag.note(false);
        assert_eq!(listen_flag.at_rest(1), None);
        assert_eq!(
            polls(&mut listen_flag, 1, &[Busy, Idle]),
            [None, Some(true)]
        );
        assert_eq!(listen_flag.at_rest(2), Some(false));
    }

    #[test]
    fn only_in_a_row() {
        let mut listen_flag = ListenFlag::default();
        let said = polls(&mut listen_flag, 1, &[Busy, Busy, Idle, Busy, Busy]);
        assert_eq!(said, [None; 5]);
    }

    #[test]
    fn a_new_registration_listens() {
        let mut listen_flag = ListenFlag::default();
        polls(&mut listen_flag, 1, &[Busy; 3]);
        assert_eq!(polls(&mut listen_flag, 2, &[Idle]), [None]);
        assert_eq!(polls(&mut listen_flag, 2, &[Busy; 3])[2], Some(false));
    }
}
