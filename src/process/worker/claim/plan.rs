//! What a worker claims next: how many jobs, from which queues and from where
//! in them, and how long it waits before the next look.

use crate::clock;
use crate::db::Refusal;
use crate::db::model::claim::{ClaimRequest, Claimed, Claims};
use crate::db::transition::claim;
use crate::event::subscriber::Subscriber;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::worker::claim::claim_gate::{ClaimGate, GateState};
use crate::process::worker::claim::queues::QueueResolver;
use crate::process::worker::claim::scan_cursors::ScanCursors;
use crate::process::worker::pool::Pool;
use crate::process::worker::prefetch::TOO_LONG;
use crate::process::worker::settings::Settings;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Plans the claims of a worker.
pub(crate) struct ClaimPlan {
    gate: ClaimGate,
    resolver: QueueResolver,
    cursors: ScanCursors,
    classes: Vec<String>,
    progress: Progress,
    polling_interval: Duration,
    /// Since when the queues are empty.
    idle_since: Option<Instant>,
}

/// Whether what was claimed ahead gets to the threads.
#[derive(Debug, Default)]
struct Progress {
    /// How many jobs the threads had begun at the last look.
    begun: u64,
    /// When that had last grown, or something was claimed ahead.
    at: Option<Instant>,
    /// When something was last claimed ahead.
    ahead_at: Option<Instant>,
}

/// How many jobs a worker has with its threads, or on their way to them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Levels {
    /// A claim fills up to this number.
    pub(crate) most: usize,
    /// With no more than this number left, the worker claims again.
    pub(crate) low: usize,
}

/// The longest wait of a poller that claims nothing, before it asks again
/// whether it may.
const GATE_PAUSE: Duration = Duration::from_secs(60);

/// The first pause after the queues were found empty. Each further one is three
/// times as long, up to the polling interval: a job whose transaction was open
/// when the process started to listen has sent no notification.
const FIRST_LOOK: Duration = Duration::from_millis(20);

impl Levels {
    /// `has_cautious`: claims are held back that only a free thread may begin.
    pub(crate) fn of(pool: &Pool, has_cautious: bool) -> Self {
        let threads = pool.threads();
        let most = threads + pool.prefetch.ahead(threads);
        if !has_cautious && most > threads {
            Levels {
                most,
                low: (most / 2).max(threads - 1),
            }
        } else {
            Levels {
                most: threads,
                low: threads - 1,
            }
        }
    }
}

impl ClaimPlan {
    pub(crate) fn new(settings: &Settings) -> Self {
        ClaimPlan {
            gate: ClaimGate::new(settings.recycle, settings.threads),
            resolver: QueueResolver::new(settings.queues.clone()),
            cursors: ScanCursors::default(),
            classes: settings.registry.classes().map(str::to_owned).collect(),
            progress: Progress::default(),
            polling_interval: settings.polling_interval,
            idle_since: None,
        }
    }

    /// Whether the worker claims at present.
    pub(crate) fn state(&mut self, stop: &Stop, pool: &Pool, subscriber: &Subscriber) -> GateState {
        self.gate.state(stop, pool, subscriber)
    }

    /// How long a worker that claims nothing waits before it asks again.
    pub(crate) fn gate_pause(&self) -> Duration {
        self.gate.patience(GATE_PAUSE)
    }

    /// How many jobs to claim while `busy` are with the threads. `None`: those
    /// are enough.
    pub(crate) fn limit(&self, pool: &Pool, busy: usize) -> Option<usize> {
        let levels = Levels::of(pool, false);
        let limit = self.gate.remaining(levels.most.saturating_sub(busy));
        (busy <= levels.low && limit > 0).then_some(limit)
    }

    /// Claims up to `limit` jobs for a process, from its queues in their order.
    pub(crate) fn claim(
        &mut self,
        session: &mut Session,
        process_id: i64,
        (limit, ahead): (usize, bool),
    ) -> Result<Claims, Duration> {
        let (resolver, classes, cursors) = (&mut self.resolver, &self.classes, &mut self.cursors);
        // Long jobs are claimed one by one, and exactly in their order.
        cursors.begin(ahead);
        let wanted_after = session.wanted.claim();
        let started = clock::instant();
        let found = session.run("claim jobs", |conn| {
            resolver.claim_from_queues(conn, (limit, wanted_after), |conn, queues, limit| {
                let want = ClaimRequest {
                    process_id,
                    queues,
                    classes,
                    limit,
                    ahead,
                    from: &cursors.from(queues),
                    wanted_after,
                };
                claim::claim(conn, &want)
            })
        });
        match &found {
            Ok(_) => session.wanted.suspect(started.elapsed()),
            Err(_) if session.refusal() == Some(Refusal::Busy) => self.cursors.give_up(),
            Err(_) => {}
        }
        found
    }

    /// Notes what a claim of `limit` jobs found for `idle` threads. True: there
    /// may be more.
    pub(crate) fn note_found(&mut self, jobs: &[Arc<Claimed>], limit: usize, idle: usize) -> bool {
        if !jobs.is_empty() {
            self.idle_since = None;
        }
        if jobs.len() > idle {
            self.progress.ahead_at = Some(clock::instant());
        }
        let is_full = jobs.len() >= limit;
        let there_is_more = is_full || self.cursors.passed_some();
        self.cursors.reach(jobs, is_full);
        self.gate.count(jobs.len());
        there_is_more
    }

    /// How long to wait for new work after a look that found the queues empty.
    pub(crate) fn idle_pause(&mut self, session: &Session) -> Duration {
        let idle = self.idle_since.get_or_insert_with(clock::instant).elapsed();
        let pause = (idle * 2).max(FIRST_LOOK).min(self.polling_interval);
        let pause = self.gate.patience(pause);
        let passed = [self.cursors.patience(), session.wanted.patience()];
        passed.into_iter().flatten().fold(pause, Duration::min)
    }

    /// For how long what was claimed ahead may still wait for a thread. `None`:
    /// nothing waits.
    pub(crate) fn patience(&mut self, pool: &Pool, has_cautious: bool) -> Option<Duration> {
        let busy = pool.busy();
        if busy <= pool.threads() && !has_cautious {
            self.progress.at = None;
            return None;
        }
        let begun = pool.begun();
        let progress = &mut self.progress;
        if progress.begun != begun || progress.at.is_none() {
            progress.begun = begun;
            progress.at = Some(clock::instant());
        }
        // Where the guess has changed meanwhile, too many wait already.
        let since = if busy > Levels::of(pool, has_cautious).most {
            progress.ahead_at
        } else {
            progress.at
        };
        since.map(|since| TOO_LONG.saturating_sub(since.elapsed()))
    }

    /// Notes that the claims that no thread has begun are given back.
    pub(crate) fn note_given_back(&mut self) {
        self.cursors.forget();
        self.progress = Progress::default();
    }
}
