//! Claims for as many jobs as there are idle threads.

use super::claims::Claims;
use super::link::Link;
use super::places::Places;
use super::pool::{Assignment, Pool};
use super::registration::{Heart, Registration};
use super::rest::{Rest, Turn};
use super::stop::Stop;
use crate::clock;
use crate::db::processes;
use crate::db::ready::{self, Claimed, Claims as Found, Want};
use crate::event::Event;
use crate::job::JobId;
use crossbeam_channel::{Receiver, Sender, after, select_biased};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The loop of a worker that claims.
pub(crate) struct Poller {
    pub(crate) heart: Arc<Heart>,
    pub(crate) claims: Arc<Claims>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) assign: Sender<Assignment>,
    pub(crate) link: Link,
    pub(crate) stop: Stop,
    pub(crate) places: Places,
    pub(crate) classes: Vec<String>,
    pub(crate) polling_interval: Duration,
    /// A thread became idle.
    pub(crate) rested: Receiver<()>,
    /// There may be new work.
    pub(crate) woken: Receiver<()>,
    /// Whether the database is asked to notify, and what it knows of that.
    pub(crate) notified: Option<Listening>,
    /// Since when the queues are empty.
    pub(crate) idle_since: Option<Instant>,
    pub(crate) rest: Rest,
}

/// Whether this process' row says that it listens. NOTIFY makes commits wait
/// for each other, so a worker that is busy anyway does without.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// The registration that the flag was written to; a new one listens.
    registration: i64,
    is_off: bool,
    full_claims: u32,
}

/// What a look at the queues came to.
enum Look {
    /// As many as there were idle threads: there may be more.
    Full,
    /// Fewer: the queues are empty but for what others hold.
    Drained,
    /// No thread is idle.
    Busy,
    /// The database is away, or the process not registered.
    NotNow(Duration),
}

/// After how many claims in a row that found enough the process stops
/// listening.
const FULL_CLAIMS: u32 = 3;

/// How long a poller that claims nothing goes without looking why.
const REST: Duration = Duration::from_secs(60);

/// When to look again first after the queues were found empty, and then after
/// each time three times as long, up to the polling interval: a job whose
/// transaction was open when the process began to listen has notified nobody.
const FIRST_LOOK: Duration = Duration::from_millis(20);

impl Poller {
    /// Runs until stopped. Nothing is claimed after that.
    pub(crate) fn run(mut self) {
        while !self.stop.is_stopped() {
            if self.rests() {
                continue;
            }
            match self.look() {
                Look::Full => {}
                Look::Busy => self.wait_for_rest(),
                Look::Drained => self.wait_for_work(),
                Look::NotNow(delay) => {
                    self.stop.wait(delay);
                }
            }
        }
    }

    /// Whether nothing is to be claimed at present; then it has waited for that
    /// to change.
    fn rests(&mut self) -> bool {
        let subscriber = self.link.subscriber().clone();
        match self.rest.turn(&self.stop, &self.pool, &subscriber) {
            Turn::Claim => return false,
            Turn::Recycle => self.stop.recycle(),
            Turn::Wait => select_biased! {
                recv(self.stop.channel()) -> _ => {}
                recv(self.stop.turned()) -> _ => {}
                recv(self.rested) -> _ => {}
                recv(after(self.rest.wear.patience(REST))) -> _ => {}
            },
        }
        true
    }

    fn look(&mut self) -> Look {
        let idle = self.rest.wear.room(self.pool.idle());
        if idle == 0 {
            return Look::Busy;
        }
        let Some(registration) = self.heart.current() else {
            return Look::NotNow(Duration::from_millis(20));
        };
        if self.claims.is_closed() {
            return Look::NotNow(Duration::from_millis(20));
        }
        let turn = Arc::clone(&self.claims);
        let turn = turn.turn();
        let found = match self.claim(&registration, idle) {
            Ok(found) => found,
            Err(delay) => return Look::NotNow(delay),
        };
        let Found::Held { jobs, is_wanted } = found else {
            drop(turn);
            if !self.stop.is_stopped() && !self.claims.is_closed() {
                self.heart.lose(
                    &registration,
                    "its row is gone: it was taken for dead and pruned",
                );
            }
            return Look::NotNow(Duration::from_millis(20));
        };
        let jobs: Vec<Arc<Claimed>> = jobs.into_iter().map(Arc::new).collect();
        for job in &jobs {
            self.claims.enter(job, &registration);
        }
        drop(turn);
        let look = if jobs.len() < idle {
            Look::Drained
        } else {
            Look::Full
        };
        if !jobs.is_empty() {
            self.idle_since = None;
        }
        self.rest.wear.count(jobs.len());
        self.hand_out(jobs, &registration);
        if is_wanted && self.link.promote() {
            return Look::Full;
        }
        look
    }

    fn claim(&mut self, registration: &Registration, limit: usize) -> Result<Found, Duration> {
        let (places, classes) = (&mut self.places, &self.classes);
        self.link.write("claim jobs", |conn| {
            places.sweep(conn, limit, |conn, queues, limit| {
                ready::claim(
                    conn,
                    &Want {
                        process_id: registration.id,
                        queues,
                        classes,
                        limit,
                    },
                )
            })
        })
    }

    /// A job whose class is not known here (only Rails' rows come so far) is
    /// given back by the thread that gets it, like any other ending.
    fn hand_out(&self, jobs: Vec<Arc<Claimed>>, registration: &Arc<Registration>) {
        for job in jobs {
            self.link.subscriber().emit(&Event::Claimed {
                job: JobId(job.job_id),
                class: &job.class_name,
                queue: &job.queue_name,
                claim: job.claim_id,
            });
            if self.stop.is_stopped() {
                return;
            }
            self.pool.occupy();
            let assignment = Assignment {
                job,
                registration: Arc::clone(registration),
            };
            // The threads live as long as this sender does.
            let _ = self.assign.send(assignment);
        }
    }

    fn wait_for_rest(&mut self) {
        self.listen(false);
        select_biased! {
            recv(self.stop.channel()) -> _ => {}
            recv(self.rested) -> _ => {}
        }
    }

    fn wait_for_work(&mut self) {
        // Listening begins before the last look, so that nothing falls between.
        if self.listen(true) {
            return;
        }
        let idle = self.idle_since.get_or_insert_with(clock::instant).elapsed();
        let pause = (idle * 2).max(FIRST_LOOK).min(self.polling_interval);
        let pause = self.rest.wear.patience(pause);
        select_biased! {
            recv(self.stop.channel()) -> _ => {}
            recv(self.woken) -> _ => {}
            recv(after(pause)) -> _ => {}
        }
    }

    /// Notes a busy (`false`) or an idle (`true`) look, and writes the flag
    /// when it must change. True: it did change, so look once more.
    fn listen(&mut self, idle: bool) -> bool {
        let (Some(listening), Some(registration)) = (&mut self.notified, self.heart.current())
        else {
            return false;
        };
        if listening.registration != registration.id {
            *listening = Listening {
                registration: registration.id,
                ..Listening::default()
            };
        }
        listening.full_claims = if idle { 0 } else { listening.full_claims + 1 };
        let off = !idle && (listening.is_off || listening.full_claims >= FULL_CLAIMS);
        if off == listening.is_off {
            return false;
        }
        let written = self.link.write("say who listens", |conn| {
            processes::listen(conn, registration.id, !off)
        });
        if written.is_ok() {
            listening.is_off = off;
        }
        written.is_ok()
    }
}
