//! The database connection of a loop, which is opened again when it breaks.

use crate::clock::{self, RetryDelay};
use crate::db::model::claim::{Claimed, ClaimsAtGate};
use crate::db::model::history::tally::CountedEnd;
use crate::db::table::history::deltas;
use crate::db::table::{rates, shares, wanted_keys};
use crate::db::transition::gate::GateWatch;
use crate::db::transition::promote::{self, Discarded, Promoted};
use crate::db::{Conn, Database, DbConnection, Precedence, Refusal, ServerSession, prefer_indexes};
use crate::deadline::{Hurry, no_answer};
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::job::JobId;
use crate::process::base::context::{DbFailure, ProcessContext};
use crate::process::base::health::LoopTurns;
use crate::process::base::history::HistoryCollector;
use crate::process::base::liveness::{BatchFronts, WantedMark};
use diesel::QueryResult;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loop's connection.
#[derive(Debug)]
pub(crate) struct Session {
    context: ProcessContext,
    connection: Option<DbConnection>,
    backoff: RetryDelay,
    /// The action that fails at present: only its success resets the backoff. On a full disk, one
    /// in two statements succeeds.
    failing: Option<&'static str>,
    /// The time at which the failure of each action was last reported.
    reported: HashMap<&'static str, Instant>,
    /// The failure of the last attempt, or `None` if it succeeded.
    refusal: Option<Refusal>,
    /// The time limit of each statement, where it differs from the database's.
    limit: Option<Duration>,
    /// The time limit of each statement after a stop was requested.
    haste: Duration,
    /// The order in which the sessions of this process write on SQLite.
    pub(crate) precedence: Precedence,
    /// Sessions of the server that gave no answer, and may still hold locks.
    silent: Vec<ServerSession>,
    /// True if the last attempt got no answer, so that its effect is unknown.
    has_missed: bool,
    /// The id after which to look for wanted keys.
    pub(crate) wanted: WantedMark,
    fronts: BatchFronts,
    promoted_at: Option<Instant>,
    /// The most requests of the next promotion.
    requests: usize,
    gates: GateWatch,
    /// The place where the loop notes that it moves, if its process is not alive without it.
    turns: Option<LoopTurns>,
}

/// The time between two promotions of a worker that always finds more to claim. Usually the end of
/// a job promotes the next one, but its process may have died in between.
const PROMOTE_EVERY: Duration = Duration::from_millis(50);

/// The same while jobs start that use shares of a queue.
const SHARE_EVERY: Duration = Duration::from_millis(3);

/// The time limit of each statement once a stop is requested, including the one under way.
const HASTE: Duration = Duration::from_secs(3);

/// The longest pause between attempts at a database that is away, and between reports of it.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The most requests of one promotion: some milliseconds of work. While more wait, and lines among them, each takes twice as
/// many as the one before.
const REQUESTS: RangeInclusive<usize> = 100..=500;

/// The most promotions in a row: one for the end of a batch, one for what follows, and so on for the batches around it.
const MOST_FOLLOWED: usize = 8;

impl Session {
    pub(crate) fn new(context: &ProcessContext) -> Self {
        Session {
            context: context.clone(),
            connection: None,
            backoff: RetryDelay::up_to(LONGEST_PAUSE),
            failing: None,
            reported: HashMap::new(),
            refusal: None,
            limit: None,
            haste: HASTE,
            precedence: Precedence::Normal,
            silent: Vec::new(),
            has_missed: false,
            wanted: WantedMark::default(),
            fronts: BatchFronts::default(),
            promoted_at: None,
            requests: *REQUESTS.start(),
            gates: GateWatch::default(),
            turns: None,
        }
    }

    /// Creates the session of a loop without which the process is not [alive](crate::processes::Health).
    pub(crate) fn of_loop(context: &ProcessContext, name: &'static str) -> Self {
        let mut session = Session::new(context);
        session.turns = Some(context.health.loops.add(name));
        session
    }

    /// Notes that the loop works. Each attempt at a statement notes it as well.
    pub(crate) fn moves(&self) {
        self.turns.iter().for_each(LoopTurns::moves);
    }

    /// Notes that the loop waits for something to do, or for a pause to end.
    pub(crate) fn rests(&self) {
        self.turns.iter().for_each(LoopTurns::rests);
    }

    /// Closes the connection to a server, until the next attempt opens another one. A file stays open.
    pub(crate) fn leave_server(&mut self) {
        if self.context.database.listens_by_notification() {
            self.connection = None;
        }
    }

    /// Limits the time of each statement.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Limits the time of each statement once a stop is requested.
    pub(crate) fn in_haste(mut self, limit: Duration) -> Self {
        self.haste = limit;
        self
    }

    pub(crate) fn database(&self) -> Database {
        self.context.database.clone()
    }

    /// Returns whether the process hears of new jobs.
    pub(crate) fn can_listen(&self) -> bool {
        self.context.database.can_listen()
    }

    /// Returns whether the last attempt got no answer.
    pub(crate) fn has_missed(&self) -> bool {
        self.has_missed
    }

    pub(crate) fn subscriber(&self) -> &Subscriber {
        &self.context.subscriber
    }

    /// Counts what the jobs of the process come to.
    pub(crate) fn history(&self) -> &HistoryCollector {
        &self.context.history
    }

    /// Stores what the jobs of the process came to, as [`HistoryCollector::store`] says.
    pub(crate) fn store_history(&mut self) -> bool {
        let history = Arc::clone(&self.context.history);
        history
            .store(|delta| self.run("store what ended", |conn| deltas::insert_delta(conn, delta)))
    }

    /// Runs `work`, and opens a connection first if there is none. After any error the connection
    /// is dropped: it may lead to a server that has become a replica, or be out of step.
    ///
    /// # Errors
    /// Returns how long to wait before the next attempt.
    pub(crate) fn run<T>(
        &mut self,
        action: &'static str,
        work: impl FnOnce(&mut Conn<'_>) -> QueryResult<T>,
    ) -> Result<T, Duration> {
        let start = clock::instant();
        match self.attempt(work) {
            Ok(value) => {
                if self.failing == Some(action) {
                    self.failing = None;
                    self.backoff.reset();
                }
                Ok(value)
            }
            Err(failure) => {
                self.record_failure(action, failure);
                // The time spent waiting without success counts as a pause.
                let pause = self.backoff.delay().saturating_sub(start.elapsed());
                Err(pause.max(SHORTEST_PAUSE))
            }
        }
    }

    /// Returns how the last attempt failed, if it did.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Returns whether the last attempt failed in a way that another attempt would, too.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.refusal == Some(Refusal::Trouble)
    }

    /// Returns how `work` would be refused now, or `None` if it would be accepted. Nothing of it is
    /// kept.
    pub(crate) fn would_refuse(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> QueryResult<()>,
    ) -> Option<Refusal> {
        use diesel::result::Error::RollbackTransaction;
        let tried = self.attempt(|conn| {
            let result = conn.transaction(|conn| {
                work(conn)?;
                Err::<(), _>(RollbackTransaction)
            });
            Ok(result.err().filter(|error| *error != RollbackTransaction))
        });
        match tried {
            Ok(error) if !self.has_missed => error.as_ref().map(Refusal::of),
            _ => Some(Refusal::Trouble),
        }
    }

    /// Returns whether the database answers, so that the error of the last attempt was an answer to
    /// that attempt.
    pub(crate) fn is_well(&mut self) -> bool {
        !self.has_missed && self.attempt(crate::db::ping).is_ok()
    }

    /// Returns whether the last promotion is so long ago that another one costs little: sooner if jobs have started that use
    /// shares of a queue, as few are ready ahead of these.
    pub(crate) fn may_promote(&self, has_shares: bool) -> bool {
        let pause = if has_shares {
            SHARE_EVERY
        } else {
            PROMOTE_EVERY
        };
        let last = self.promoted_at;
        last.is_none_or(|at| at.elapsed() >= pause)
    }

    /// Returns the time until the next rate is due, as far as this process knows.
    pub(crate) fn until_rate(&self) -> Option<Duration> {
        self.context.next_rate.left()
    }

    /// Looks when the next rate is due.
    ///
    /// # Errors
    /// If the database is away: the time to wait.
    pub(crate) fn look_for_rate(&mut self) -> Result<Option<Duration>, Duration> {
        let next = self.run("look for rates that are due", rates::next_due)?;
        self.context.next_rate.set(next);
        Ok(next)
    }

    /// Looks for it if this process has not for a while: another one may have made jobs wait.
    pub(crate) fn look_for_rate_at_times(&mut self) {
        if self.context.next_rate.is_old() {
            let _ = self.look_for_rate();
        }
    }

    /// Lets jobs through whose rates are due. Returns `true` if there may be more to do.
    pub(crate) fn promote_due(&mut self) -> bool {
        self.context.next_rate.set_due();
        self.promote()
    }

    /// Notes which shares claimed jobs use. Returns `true` if a promotion may let others through.
    pub(crate) fn note_shares(&mut self, jobs: &[Arc<Claimed>]) -> bool {
        let timed = self.context.shares.note_claimed(jobs);
        if !timed.is_empty() {
            let tenants = self.run("look for the tenants of jobs", |conn| {
                shares::tenants_of(conn, &timed)
            });
            self.context.shares.measure(tenants.unwrap_or_default());
        }
        self.context.shares.has_started()
    }

    /// Promotes blocked jobs. Returns `true` if there may be more to do. If it fails, a later call does it.
    ///
    /// Continues for several transactions: jobs that follow a batch come a transaction later, and other processes
    /// leave to this one the keys that it has locked.
    pub(crate) fn promote(&mut self) -> bool {
        self.promote_until(|_| false)
    }

    /// Does the same until jobs are ready that this process may claim: it does so before it goes on. Returns as well which of
    /// them it has claimed at once.
    pub(crate) fn promote_to_claim(
        &mut self,
        claims: Option<ClaimsAtGate>,
    ) -> (bool, Vec<Claimed>) {
        self.gates.claims = claims;
        let mut claimed = Vec::new();
        let is_progress = self.promote_until(|promoted| {
            claimed.append(&mut promoted.claimed);
            !promoted.ready.is_empty() || !claimed.is_empty()
        });
        self.gates.claims = None;
        (is_progress, claimed)
    }

    fn promote_until(&mut self, mut is_enough: impl FnMut(&mut Promoted) -> bool) -> bool {
        let mut is_progress = false;
        for _ in 0..MOST_FOLLOWED {
            let requests = self.requests;
            let mut promoted = self.promote_once();
            is_progress |= promoted.is_progress(requests);
            if is_enough(&mut promoted) || !promoted.goes_on() {
                break;
            }
        }
        is_progress
    }

    fn promote_once(&mut self) -> Promoted {
        self.promoted_at = Some(clock::instant());
        let search = self.wanted.begin();
        // Fewer again, unless this one says otherwise: it may fail for being too large.
        let requests = std::mem::replace(&mut self.requests, *REQUESTS.start());
        let mut fronts = std::mem::take(&mut self.fronts);
        let mut gates = std::mem::take(&mut self.gates);
        gates.is_due = self.context.next_rate.is_due();
        self.context.shares.pass_to(&mut gates);
        let promoted = self.run("promote blocked jobs", |conn| {
            let promoted = promote::promote_after(conn, search.after, requests, &mut gates)?;
            fronts.pass_ended(conn, &promoted.open_batches)?;
            let asks = search.asks_after(promoted.search_took);
            let last = asks.then(|| wanted_keys::last_id(conn)).transpose()?;
            Ok((promoted, last))
        });
        self.fronts = fronts;
        self.context.shares.note_by_time(&gates.by_time);
        if promoted.is_ok() {
            gates.started.clear();
        }
        let was_due = gates.is_due;
        self.gates = gates;
        let (promoted, last) = match promoted {
            Ok(done) => done,
            Err(pause) => {
                if was_due {
                    self.context.next_rate.set_after_look(Some(pause));
                }
                return Promoted::default();
            }
        };
        if was_due || promoted.next_due.is_some() {
            self.context.next_rate.set_after_look(promoted.next_due);
        }
        for row in &promoted.invalid {
            log::warn!(row = row.as_str(); "dropped a row of windlass_wanted_keys that is no request: {row}");
        }
        let why = promoted.refused.iter();
        why.for_each(|why| self.report("promote blocked jobs", why));
        let is_full = promoted.requests >= requests;
        if is_full && promoted.has_gates {
            self.requests = (2 * requests).min(*REQUESTS.end());
        }
        self.wanted.end(search, promoted.search_took, is_full, last);
        self.report_discarded(&promoted.discarded);
        promoted
    }

    fn report_discarded(&self, jobs: &[Discarded]) {
        for job in jobs {
            self.history()
                .add(&job.queue_name, &job.class_name, CountedEnd::Discarded);
            self.subscriber().emit(&Event::Discarded {
                job: JobId(job.id),
                class: &job.class_name,
                queue: "",
                attempt: 0,
                claim: 0,
                kind: job.kind,
                message: "",
            });
        }
    }

    fn record_failure(&mut self, action: &'static str, failure: DbFailure) {
        self.failing.get_or_insert(action);
        match failure {
            DbFailure::Transient(_) if self.context.is_lost() => {}
            DbFailure::Transient(reason) => {
                self.connection = None;
                self.report(action, &reason);
            }
            DbFailure::Fatal(reason) => self.context.lose(&reason),
        }
    }

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> QueryResult<T>,
    ) -> Result<T, DbFailure> {
        self.moves();
        self.has_missed = false;
        self.refusal = Some(Refusal::Trouble);
        if self.context.is_lost() {
            return Err(DbFailure::Transient(String::new()));
        }
        self.context.check_file()?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let result = connection.with_write_lock(work);
        self.moves();
        let Some(limit) = connection.missed() else {
            self.connection = Some(connection);
            self.refusal = result.as_ref().err().map(Refusal::of);
            return result.map_err(|error| self.context.judge(&error.to_string()));
        };
        self.has_missed = true;
        self.silent.extend(connection.session());
        result.map_err(|_| DbFailure::Transient(no_answer(limit)))
    }

    /// Opens a connection, and ends the sessions that gave no answer, which frees their locks.
    fn open(&mut self) -> Result<DbConnection, DbFailure> {
        let mut connection = self.context.connect(Some(Hurry {
            stopping: self.context.stop.flag(),
            limit: self.haste,
        }))?;
        connection.precedence = self.precedence;
        let transient = |error: diesel::result::Error| self.context.judge(&error.to_string());
        if let Some(limit) = self.limit {
            connection.hurry(limit).map_err(transient)?;
        }
        let preferred = connection.with_write_lock(prefer_indexes);
        preferred.map_err(transient)?;
        for session in self.silent.drain(..) {
            connection.end(&session).map_err(transient)?;
        }
        Ok(connection)
    }

    /// Reports that an action fails: at once, then every ten seconds at most.
    pub(crate) fn report(&mut self, action: &'static str, reason: &str) {
        let now = clock::instant();
        let last = self.reported.get(action);
        if last.is_none_or(|last| now - *last >= REPORT_EVERY) {
            self.reported.insert(action, now);
            self.subscriber()
                .emit(&Event::Unreachable { action, reason });
        }
    }
}

impl Drop for Session {
    /// Closing the last connection to a SQLite file writes the log back into it. A file that is
    /// lost is left as it is.
    fn drop(&mut self) {
        if self.context.is_lost() {
            std::mem::forget(self.connection.take());
        }
    }
}
