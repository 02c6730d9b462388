//! Writes down how jobs ended, in batches that form while the last one is
//! under way, and keeps what it cannot write until it can. A claim that another
//! transaction has locked is passed over and tried again alone.

use crate::clock;
use crate::db::Refusal;
use crate::job::perform::Outcome;
use crate::process::base::context::ProcessContext;
use crate::process::base::stop::Stop;
use crate::process::worker::completion::{self, CompletedRun, PendingCompletion, grouped};
use crate::process::worker::completion_writer::CompletionWriter;
use crate::process::worker::in_flight::InFlight;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Endings of one statement.
const BATCH: usize = 500;

/// While the process stops, the longest pause before a database that is away is
/// tried again.
const HASTE: Duration = Duration::from_millis(200);

/// The completer of a worker.
pub(crate) struct Completer {
    completed: Receiver<CompletedRun>,
    writer: CompletionWriter,
    /// The process stops, and has little time left for another attempt.
    stop: Stop,
    /// Gives up what cannot be written: the process ends.
    give_up: Stop,
    deferred: Vec<PendingCompletion>,
    /// Until when no lock is waited for longer than a moment: others hold some.
    brief_until: Option<Instant>,
}

/// For how long after a lock that was not to be had.
const BRIEF: Duration = Duration::from_secs(10);

impl Completer {
    pub(crate) fn new(
        context: &ProcessContext,
        in_flight: &Arc<InFlight>,
        completed: Receiver<CompletedRun>,
    ) -> Self {
        Completer {
            completed,
            writer: CompletionWriter::new(context, in_flight),
            stop: context.stop.clone(),
            give_up: context.give_up_writing.clone(),
            deferred: Vec::new(),
            brief_until: None,
        }
    }

    /// Runs until every job thread has ended and everything is written.
    pub(crate) fn run(mut self) {
        while !self.give_up.is_stopped() {
            let due = self.deferred.iter().map(|pending| pending.again_at).min();
            let first = match due {
                None => self
                    .completed
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => self.completed.recv_deadline(due),
            };
            let mut batch = self.take_due();
            match first {
                Ok(first) => {
                    let more = self.completed.try_iter().take(BATCH - 1);
                    batch.extend(std::iter::once(first).chain(more).map(completion::pending));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let Some(due) = due else { return };
                    if batch.is_empty() {
                        let pause = due.saturating_duration_since(clock::instant());
                        self.give_up.wait(pause);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            for group in grouped(batch) {
                self.write(group);
            }
        }
    }

    fn take_due(&mut self) -> Vec<PendingCompletion> {
        let now = clock::instant();
        let all = std::mem::take(&mut self.deferred);
        let (due, later) = all.into_iter().partition(|pending| pending.again_at <= now);
        self.deferred = later;
        due
    }

    /// Writes endings of one kind. While the database is away they wait
    /// together; when it answers and yet refuses them, they are halved until
    /// the one that it refuses stands alone and is put aside: a bad row must
    /// not hold up another.
    fn write(&mut self, mut group: Vec<PendingCompletion>) {
        loop {
            let is_brief = self.is_brief(&group);
            let delay = match self.writer.write(&group, is_brief) {
                Ok(busy) if busy.is_empty() => return,
                Ok(busy) => return self.pass_over(group, &busy),
                Err(delay) => delay,
            };
            let refusal = self.writer.session.refusal();
            group.iter_mut().for_each(|pending| pending.tries += 1);
            if refusal == Some(Refusal::Busy) {
                self.brief_until = Some(clock::deadline(BRIEF));
            }
            // A full disk refuses all alike at first, but what is small may fit.
            let is_lasting = group.first().is_some_and(|pending| pending.tries > 3);
            if (!self.writer.session.is_in_trouble() || is_lasting) && self.writer.session.is_well()
            {
                return self.halve(group, refusal);
            }
            let most = if self.stop.is_stopped() { HASTE } else { delay };
            if self.give_up.wait(delay.min(most)) {
                return;
            }
        }
    }

    /// Writes both halves of what the database refuses. One alone is put aside.
    fn halve(&mut self, mut group: Vec<PendingCompletion>, refusal: Option<Refusal>) {
        if group.len() > 1 {
            let rest = group.split_off(group.len() / 2);
            self.write(group);
            self.write(rest);
        } else {
            for pending in group {
                self.put_aside(pending, refusal);
            }
        }
    }

    /// The claims that another transaction has locked are tried again later.
    fn pass_over(&mut self, group: Vec<PendingCompletion>, busy: &[i64]) {
        let count = busy.len();
        self.writer.session.report(
            "end some claims",
            &format!("{count} of them are locked by other transactions"),
        );
        let busy = group
            .into_iter()
            .filter(|pending| busy.contains(&pending.claim()));
        self.deferred.extend(busy.map(completion::put_aside));
    }

    /// Tried again later too, and without its text if that is what is refused:
    /// if all is accepted but for the text. What others hold or what is full
    /// at present costs no text.
    fn put_aside(&mut self, mut pending: PendingCompletion, refusal: Option<Refusal>) {
        if refusal == Some(Refusal::Content) && pending.was_refused() {
            let mut without = pending.run.outcome.clone();
            completion::drop_text(&mut without);
            let run = &pending.run;
            let mut refuses = |outcome: &Outcome| {
                let session = &mut self.writer.session;
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

    /// Whether no lock is to be waited for long.
    fn is_brief(&self, group: &[PendingCompletion]) -> bool {
        let met = self.brief_until.is_some_and(|at| clock::instant() < at);
        met || group.iter().any(|pending| pending.tries > 0)
    }
}
