//! Claims for as many jobs as there are idle threads, and for more where jobs
//! are so short that the threads would wait for the next claim.

use crate::clock;
use crate::db::Refusal;
use crate::db::conn::wakeup;
use crate::db::model::claim::{Claimed, Claims as Found, Want};
use crate::db::table::{claimed, processes};
use crate::db::transition::claim;
use crate::event::events::Event;
use crate::job::id::JobId;
use crate::process::base::heartbeat::Heart;
use crate::process::base::registration::Registration;
use crate::process::base::session::Link;
use crate::process::base::stop::Stop;
use crate::process::worker::claim_gate::{Rest, Turn};
use crate::process::worker::in_flight::Claims;
use crate::process::worker::listen_flag::Listening;
use crate::process::worker::pool::{Assignment, Pool};
use crate::process::worker::prefetch::TOO_LONG;
use crate::process::worker::queues::Places;
use crate::process::worker::release;
use crate::process::worker::scan_cursors::Marks;
use crossbeam_channel::{Receiver, Sender, after, never, select_biased};
use std::collections::VecDeque;
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
    /// Woken since the queues were last found empty: what there is has to be
    /// taken, or others are to be woken.
    pub(crate) is_woken: bool,
    /// Since when the queues are empty.
    pub(crate) idle_since: Option<Instant>,
    pub(crate) rest: Rest,
    pub(crate) marks: Marks,
    /// Claimed ahead of the threads, and not to be noted as begun before one
    /// is free.
    pub(crate) cautious: VecDeque<Assignment>,
    pub(crate) progress: Progress,
}

/// Whether what was claimed ahead gets to the threads.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// How many jobs the threads had begun when it was last looked at.
    begun: u64,
    /// When that had last grown, or something was claimed ahead.
    at: Option<Instant>,
    /// When something was last claimed ahead.
    ahead_at: Option<Instant>,
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

/// So many ends may wait to be written before nothing more is claimed: whatever
/// happens to the process then, those jobs run once more. Four batches.
const MOST_UNWRITTEN: usize = 2_000;

/// For how long the finisher is left alone that is so far behind.
const FOR_THE_FINISHER: Duration = Duration::from_millis(10);

/// How long a poller that claims nothing goes without looking why.
const REST: Duration = Duration::from_secs(60);

/// For how long a worker that was woken, and has no idle thread, waits for one
/// before it wakes others.
const TO_PASS_ON: Duration = Duration::from_millis(1);

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
                Look::Full => drop(self.listen(false)),
                Look::Busy => self.wait_for_rest(),
                Look::Drained => self.wait_for_work(),
                Look::NotNow(delay) => {
                    self.stop.wait(delay);
                }
            }
        }
        self.pass_on();
    }

    /// Wakes others, when this worker was woken and takes no more for now.
    fn pass_on(&mut self) {
        self.is_woken |= self.woken.try_recv().is_ok();
        let Some(registration) = self.heart.current().filter(|_| self.is_woken) else {
            return;
        };
        self.is_woken = false;
        if self.notified.is_some() {
            let _ = self.link.write("wake other workers", |conn| {
                wakeup::pass_on(conn, registration.id)
            });
        }
    }

    /// Whether nothing is to be claimed at present; then it has waited for that
    /// to change.
    fn rests(&mut self) -> bool {
        let subscriber = self.link.subscriber().clone();
        let turn = self.rest.turn(&self.stop, &self.pool, &subscriber);
        if !matches!(turn, Turn::Claim) && !self.cautious.is_empty() {
            self.give_back();
        }
        match turn {
            Turn::Claim => return false,
            Turn::Recycle => self.stop.recycle(),
            Turn::Wait => {
                self.listen_no_more();
                self.pass_on();
                select_biased! {
                    recv(self.stop.channel()) -> _ => {}
                    recv(self.stop.turned()) -> _ => {}
                    recv(self.rested) -> _ => {}
                    recv(self.woken) -> _ => self.is_woken = true,
                    recv(after(self.rest.wear.patience(REST))) -> _ => {}
                }
            }
        }
        true
    }

    /// How many jobs to have on their way to the threads or with them, and
    /// with how many left to claim more.
    fn levels(&self) -> (usize, usize) {
        let threads = self.pool.threads();
        let most = threads + self.pool.pace.ahead(threads);
        if self.cautious.is_empty() && most > threads {
            (most, (most / 2).max(threads - 1))
        } else {
            (threads, threads - 1)
        }
    }

    fn look(&mut self) -> Look {
        if !self.cautious.is_empty() {
            return self.begin_cautious();
        }
        let (busy, idle) = (self.pool.busy(), self.pool.idle());
        let (most, low) = self.levels();
        let limit = self.rest.wear.room(most.saturating_sub(busy));
        if busy > low || limit == 0 {
            return Look::Busy;
        }
        if self.pool.unwritten() > MOST_UNWRITTEN {
            return Look::NotNow(FOR_THE_FINISHER);
        }
        self.take(limit, idle)
    }

    /// Claims up to so many jobs, for `idle` threads that are free.
    fn take(&mut self, limit: usize, idle: usize) -> Look {
        let Some(registration) = self.heart.current() else {
            return Look::NotNow(Duration::from_millis(20));
        };
        if self.claims.is_closed() {
            return Look::NotNow(Duration::from_millis(20));
        }
        self.is_woken |= self.woken.try_recv().is_ok();
        let turn = Arc::clone(&self.claims);
        let turn = turn.turn();
        let found = match self.claim(&registration, limit, limit > idle) {
            Ok(found) => found,
            Err(delay) => {
                if self.link.refusal() == Some(Refusal::Busy) {
                    self.marks.give_up();
                }
                return Look::NotNow(delay);
            }
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
        self.claims.enter(&jobs, &registration);
        drop(turn);
        if !jobs.is_empty() {
            self.idle_since = None;
        }
        if jobs.len() > idle {
            self.progress.ahead_at = Some(clock::instant());
        }
        let there_is_more = jobs.len() >= limit || self.marks.passed_some();
        self.marks.reach(&jobs, jobs.len() >= limit);
        self.rest.wear.count(jobs.len());
        self.take_over(jobs, &registration);
        let is_due = self.link.wanted.is_due();
        let promotes = is_due || (is_wanted && (!there_is_more || self.link.may_promote()));
        let has_promoted = promotes && self.link.promote();
        if there_is_more || has_promoted {
            Look::Full
        } else {
            self.is_woken = false;
            Look::Drained
        }
    }

    fn claim(
        &mut self,
        registration: &Registration,
        limit: usize,
        ahead: bool,
    ) -> Result<Found, Duration> {
        let (places, classes, marks) = (&mut self.places, &self.classes, &mut self.marks);
        // Long jobs are claimed one by one, and exactly in their order.
        marks.begin(ahead);
        let wanted_after = self.link.wanted.claim();
        let begun = clock::instant();
        let found = self.link.write("claim jobs", |conn| {
            places.sweep(conn, (limit, wanted_after), |conn, queues, limit| {
                let want = Want {
                    process_id: registration.id,
                    queues,
                    classes,
                    limit,
                    ahead,
                    from: &marks.from(queues),
                    wanted_after,
                };
                claim::claim(conn, &want)
            })
        })?;
        self.link.wanted.suspect(begun.elapsed());
        Ok(found)
    }

    /// Hands out what was claimed, but for what must not be noted as begun
    /// before a thread is free for it.
    fn take_over(&mut self, jobs: Vec<Arc<Claimed>>, registration: &Arc<Registration>) {
        for job in &jobs {
            self.link.subscriber().emit(&Event::Claimed {
                job: JobId(job.job_id),
                class: &job.class_name,
                queue: &job.queue_name,
                claim: job.claim_id,
            });
        }
        let assignments = jobs.into_iter().map(|job| Assignment {
            job,
            registration: Arc::clone(registration),
        });
        let (begun, cautious): (Vec<_>, Vec<_>) = assignments.partition(|one| one.job.begun);
        self.cautious.extend(cautious);
        self.hand_out(begun);
    }

    /// Notes claims as begun for the threads that are idle, and hands them out.
    fn begin_cautious(&mut self) -> Look {
        let idle = self.pool.idle().min(self.cautious.len());
        if idle == 0 {
            return Look::Busy;
        }
        let first = self.cautious[0].registration.id;
        let mut next: Vec<Assignment> = self.cautious.drain(..idle).collect();
        let same = next
            .iter()
            .position(|one| one.registration.id != first)
            .unwrap_or(next.len());
        let others = next.split_off(same);
        others
            .into_iter()
            .rev()
            .for_each(|one| self.cautious.push_front(one));
        let ids: Vec<i64> = next.iter().map(|one| one.job.claim_id).collect();
        let begun = self
            .link
            .write("begin jobs", |conn| claimed::begin(conn, first, &ids));
        match begun {
            Ok(begun) => {
                let (ours, lost): (Vec<_>, Vec<_>) = next
                    .into_iter()
                    .partition(|one| begun.contains(&one.job.claim_id));
                let lost: Vec<i64> = lost.iter().map(|one| one.job.claim_id).collect();
                self.claims.remove(&lost);
                self.hand_out(ours);
                Look::Full
            }
            Err(delay) => {
                next.into_iter()
                    .rev()
                    .for_each(|one| self.cautious.push_front(one));
                Look::NotNow(delay)
            }
        }
    }

    /// A job whose class is not known here (only Rails' rows come so far) is
    /// given back by the thread that gets it, like any other ending.
    fn hand_out(&self, jobs: Vec<Assignment>) {
        if self.stop.is_stopped() {
            return;
        }
        self.pool.occupy(jobs.len());
        for assignment in jobs {
            // The threads live as long as this sender does.
            let _ = self.assign.send(assignment);
        }
    }

    fn wait_for_rest(&mut self) {
        self.listen(false);
        let (_, low) = self.levels();
        self.pool.tell_at(low);
        if self.pool.busy() <= low {
            return;
        }
        let stuck = self.stuck();
        let to_pass_on = if self.is_woken {
            after(TO_PASS_ON)
        } else {
            never()
        };
        select_biased! {
            recv(self.stop.channel()) -> _ => {}
            recv(self.rested) -> _ => {}
            recv(stuck) -> _ => self.give_back_stuck(),
            recv(self.woken) -> _ => self.is_woken = true,
            recv(to_pass_on) -> _ => self.pass_on(),
        }
    }

    /// When to look whether what was claimed ahead still waits.
    fn stuck(&mut self) -> Receiver<Instant> {
        self.patience().map_or_else(never, after)
    }

    /// For how long what was claimed ahead may still wait. `None`: nothing
    /// waits.
    fn patience(&mut self) -> Option<Duration> {
        let busy = self.pool.busy();
        if busy <= self.pool.threads() && self.cautious.is_empty() {
            self.progress.at = None;
            return None;
        }
        let begun = self.pool.begun();
        let progress = &mut self.progress;
        if progress.begun != begun || progress.at.is_none() {
            progress.begun = begun;
            progress.at = Some(clock::instant());
        }
        // Where the guess has changed meanwhile, too many wait already.
        let since = if busy > self.levels().0 {
            self.progress.ahead_at
        } else {
            self.progress.at
        };
        since.map(|since| TOO_LONG.saturating_sub(since.elapsed()))
    }

    /// Jobs turn out to take longer than those before: another worker may
    /// have what no thread of this one has begun.
    fn give_back_stuck(&mut self) {
        if self.patience().is_some_and(|left| left.is_zero()) {
            self.pool.pace.slow_down();
            self.give_back();
        }
    }

    /// Gives back what no thread has begun.
    fn give_back(&mut self) {
        self.cautious.clear();
        self.marks.forget();
        self.progress = Progress::default();
        release::waiting(&self.claims, &mut self.link);
    }

    fn wait_for_work(&mut self) {
        // Listening begins before the last look, so that nothing falls between.
        if self.listen(true) {
            return;
        }
        let idle = self.idle_since.get_or_insert_with(clock::instant).elapsed();
        let pause = (idle * 2).max(FIRST_LOOK).min(self.polling_interval);
        let pause = self.rest.wear.patience(pause);
        let passed = [self.marks.patience(), self.link.wanted.patience()];
        let pause = passed.into_iter().flatten().fold(pause, Duration::min);
        let stuck = self.stuck();
        select_biased! {
            recv(self.stop.channel()) -> _ => {}
            recv(self.woken) -> _ => self.is_woken = true,
            recv(stuck) -> _ => self.give_back_stuck(),
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
        let listens = listening.after_look(registration.id, idle);
        self.note_listening(registration.id, listens)
    }

    /// While it rests, others are to be woken in its stead.
    fn listen_no_more(&mut self) {
        if let (Some(listening), Some(registration)) = (&mut self.notified, self.heart.current()) {
            let listens = listening.at_rest(registration.id);
            self.note_listening(registration.id, listens);
        }
    }

    /// Writes down whether it listens, if that changes. True: so it is written.
    fn note_listening(&mut self, registration: i64, listens: Option<bool>) -> bool {
        let (Some(listening), Some(listens)) = (&mut self.notified, listens) else {
            return false;
        };
        let written = self.link.write("say who listens", |conn| {
            processes::listen(conn, registration, listens)
        });
        if written.is_ok() {
            listening.note(listens);
        }
        written.is_ok()
    }
}
