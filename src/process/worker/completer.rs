//! Writes the outcomes of jobs to the database. Outcomes that arrive during one
//! write form the next chunk.
//!
//! An outcome that cannot be written is kept and tried again. A claim that
//! another transaction has locked is skipped, and tried again alone.

use crate::clock;
use crate::db::{LockWait, Refusal};
use crate::job::perform::Outcome;
use crate::process::base::context::ProcessContext;
use crate::process::base::stop::Stop;
use crate::process::worker::completion::{self, PendingCompletion, WriteHere, grouped};
use crate::process::worker::completion_writer::{CompletionWriter, SharedWriter};
use crate::process::worker::in_flight::InFlight;
use crate::process::worker::slot_passing::SlotPassing;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most new outcomes of one chunk.
const CHUNK: usize = 500;

/// The time for which outcomes are gathered after others were just written.
const GATHERING: Duration = Duration::from_millis(2);

/// So many outcomes are written without waiting for more.
const ENOUGH: usize = 64;

/// The longest pause between two attempts while the database is away and the
/// process stops.
const HASTE: Duration = Duration::from_millis(200);

/// After so long without an outcome, the connection to a server is closed: an idle worker needs it for nothing.
const IDLE: Duration = Duration::from_secs(10);

/// The completer of a worker.
pub(crate) struct Completer {
    completed: Receiver<PendingCompletion>,
    writer: Arc<SharedWriter>,
    /// Set while the process stops: pauses are short then.
    stop: Stop,
    /// Set when the process ends: what is not written by then stays unwritten.
    give_up: Stop,
    /// Outcomes that are tried again later.
    deferred: Vec<PendingCompletion>,
    /// Until then, writes wait only briefly for locks, because other transactions
    /// hold some.
    brief_until: Option<Instant>,
    /// The time of the last written chunk.
    wrote_at: Option<Instant>,
}

/// The time for which writes wait only briefly for locks after one was not granted.
const BRIEF: Duration = Duration::from_secs(10);

impl Completer {
    pub(crate) fn new(
        context: &ProcessContext,
        in_flight: &Arc<InFlight>,
        passing: SlotPassing,
        completed: Receiver<PendingCompletion>,
    ) -> Self {
        Completer {
            completed,
            writer: Arc::new(SharedWriter::new(context, in_flight, passing)),
            stop: context.stop.clone(),
            give_up: context.give_up_writing.clone(),
            deferred: Vec::new(),
            brief_until: None,
            wrote_at: None,
        }
    }

    /// Returns how a thread writes that has run the only job under way.
    pub(crate) fn write_here(&self) -> Box<WriteHere> {
        let writer = Arc::downgrade(&self.writer);
        Box::new(move |run| match writer.upgrade() {
            Some(writer) => writer.write_here(run),
            None => Some(completion::pending(run)),
        })
    }

    /// Runs until every job thread has ended and every outcome is written.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.writer);
        while !self.give_up.is_stopped() {
            let due = self.deferred.iter().map(|pending| pending.again_at).min();
            shared.lock().session.rests();
            let first = match due {
                None => self.next_outcome(),
                Some(due) => self.completed.recv_deadline(due),
            };
            shared.lock().session.moves();
            let mut chunk = self.take_due();
            match first {
                Ok(first) => {
                    self.gather(&first);
                    let more = self.completed.try_iter().take(CHUNK - 1);
                    chunk.extend(std::iter::once(first).chain(more));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let Some(due) = due else { return };
                    if chunk.is_empty() {
                        let pause = due.saturating_duration_since(clock::instant());
                        shared.lock().session.rests();
                        self.give_up.wait(pause);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let writer = &mut *shared.lock();
            for group in grouped(chunk) {
                self.write(writer, group);
            }
            self.wrote_at = Some(clock::instant());
        }
    }

    /// Waits for an outcome, after a while without a connection.
    fn next_outcome(&mut self) -> Result<PendingCompletion, RecvTimeoutError> {
        loop {
            let received = self.completed.recv_timeout(IDLE);
            if !matches!(received, Err(RecvTimeoutError::Timeout)) {
                return received;
            }
            if self.writer.leave_server(IDLE) {
                let received = self.completed.recv();
                return received.map_err(|_| RecvTimeoutError::Disconnected);
            }
        }
    }

    /// Waits a moment for more outcomes, if they come one after the other. Otherwise most would have a
    /// commit of their own, and jobs that write would wait for it. A limited job is not delayed,
    /// because it keeps its thread until its outcome is written.
    fn gather(&self, first: &PendingCompletion) {
        let is_busy = self.wrote_at.is_some_and(|at| at.elapsed() < GATHERING);
        if is_busy && self.completed.len() < ENOUGH && !first.run.job.is_limited {
            self.give_up.wait(GATHERING);
        }
    }

    /// Takes out the deferred outcomes whose time has come.
    fn take_due(&mut self) -> Vec<PendingCompletion> {
        let now = clock::instant();
        let all = std::mem::take(&mut self.deferred);
        let (due, later) = all.into_iter().partition(|pending| pending.again_at <= now);
        self.deferred = later;
        due
    }

    /// Writes a group of outcomes of one kind.
    ///
    /// The whole group waits while the database is away. If the database answers
    /// and refuses the group, the group is halved until the refused outcome is
    /// alone. That one is put aside, so that it does not hold up the others.
    fn write(&mut self, writer: &mut CompletionWriter, mut group: Vec<PendingCompletion>) {
        loop {
            let wait = LockWait::short_if(self.is_brief(&group));
            let delay = match writer.write(&group, wait) {
                Ok(busy) if busy.is_empty() => return,
                Ok(busy) => return self.pass_over(writer, group, &busy),
                Err(delay) => delay,
            };
            let refusal = writer.session.refusal();
            group.iter_mut().for_each(|pending| pending.tries += 1);
            if refusal == Some(Refusal::Busy) {
                self.brief_until = Some(clock::deadline(BRIEF));
            }
            // A full disk refuses every group at first, but a smaller group may fit.
            let is_lasting = group.first().is_some_and(|pending| pending.tries > 3);
            if (!writer.session.is_in_trouble() || is_lasting) && writer.session.is_well() {
                return self.halve(writer, group, refusal);
            }
            let most = if self.stop.is_stopped() { HASTE } else { delay };
            if self.give_up.wait(delay.min(most)) {
                return;
            }
        }
    }

    /// Writes both halves of a refused group. A single outcome is put aside.
    fn halve(
        &mut self,
        writer: &mut CompletionWriter,
        mut group: Vec<PendingCompletion>,
        refusal: Option<Refusal>,
    ) {
        if group.len() > 1 {
            let rest = group.split_off(group.len() / 2);
            self.write(writer, group);
            self.write(writer, rest);
        } else {
            for pending in group {
                self.put_aside(writer, pending, refusal);
            }
        }
    }

    /// Defers the outcomes whose claims another transaction has locked.
    fn pass_over(
        &mut self,
        writer: &mut CompletionWriter,
        group: Vec<PendingCompletion>,
        busy: &[i64],
    ) {
        let count = busy.len();
        writer.session.report(
            "end some claims",
            &format!("{count} of them are locked by other transactions"),
        );
        let busy = group
            .into_iter()
            .filter(|pending| busy.contains(&pending.claim()));
        self.deferred.extend(busy.map(completion::put_aside));
    }

    /// Defers a refused outcome. It loses its text if the database accepts it
    /// without the text, and refuses it with the text. A lock or a full disk costs
    /// no text.
    fn put_aside(
        &mut self,
        writer: &mut CompletionWriter,
        mut pending: PendingCompletion,
        refusal: Option<Refusal>,
    ) {
        if refusal == Some(Refusal::Content) && pending.was_refused() {
            let mut without = pending.run.outcome.clone();
            completion::drop_text(&mut without);
            let run = &pending.run;
            let mut refuses = |outcome: &Outcome| {
                let session = &mut writer.session;
                session.would_refuse(|conn| completion::write(conn, run, outcome))
            };
            let is_the_text =
                refuses(&without).is_none() && refuses(&run.outcome) == Some(Refusal::Content);
            if is_the_text {
                pending.run.outcome = without;
            }
        }
        self.deferred.push(completion::put_aside(pending));
    }

    /// Returns whether the write waits only briefly for locks.
    fn is_brief(&self, group: &[PendingCompletion]) -> bool {
        let met = self.brief_until.is_some_and(|at| clock::instant() < at);
        met || group.iter().any(|pending| pending.tries > 0)
    }
}
