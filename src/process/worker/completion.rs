//! How jobs ended, sorted into what one statement can write.

use crate::db::model::claim::ClaimOf;
use crate::db::model::new_result::JobOutput;
use crate::db::transition::end;
use crate::db::transition::finish::KeySlots;

use crate::clock;
use crate::db::Conn;
use crate::db::model::claim::{Claimed, Fence, FinishedRow};
use crate::db::model::outcome::ClaimEnd;
use crate::db::transition::finish::{self, FinishedJob};
use crate::job::perform::Outcome;
use crate::job::running::Live;
use crate::process::base::registration::Registration;
use diesel::QueryResult;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest pause before an ending is tried again that the database
/// refuses although it answers, or whose claim is locked.
const LONGEST_DEFERRAL: Duration = Duration::from_secs(5);

/// Ends of one transaction that are no success: each takes some statements,
/// and whoever wants to cancel one of the jobs waits for all.
const FEW: usize = 50;

/// A job that a thread is done with.
pub(crate) struct CompletedRun {
    pub(crate) job: Arc<Claimed>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) outcome: Outcome,
    pub(crate) ran: Duration,
    /// What becomes of its row.
    pub(crate) finished: FinishedRow,
    /// For how long what it came to is kept beside it, if that was said.
    pub(crate) keep_result: Option<Duration>,
    pub(crate) live: Arc<Live>,
}

impl CompletedRun {
    /// What it leaves behind, if it has finished.
    pub(crate) fn traces(&self) -> Option<FinishedJob<'_>> {
        self.traces_of(&self.outcome)
    }

    fn traces_of<'a>(&'a self, outcome: &'a Outcome) -> Option<FinishedJob<'a>> {
        let Outcome::Finished(output) = outcome else {
            return None;
        };
        Some(FinishedJob::new(
            &self.job,
            JobOutput {
                text: output.text.as_deref(),
                problem: output.problem.as_deref(),
            },
            self.keep_result,
            self.live.has_steps(),
        ))
    }
}

/// An ending that is to be written.
pub(crate) struct PendingCompletion {
    pub(crate) run: CompletedRun,
    /// Attempts so far: any of them may have been accepted unheard.
    pub(crate) tries: u32,
    /// How often the database has refused it alone.
    refusals: u32,
    pub(crate) again_at: Instant,
}

/// What the endings of one statement have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) process_id: i64,
    pub(crate) finished: FinishedRow,
    pub(crate) leaves_traces: bool,
    pub(crate) is_limited: bool,
}

impl PendingCompletion {
    pub(crate) fn claim(&self) -> i64 {
        self.run.job.claim_id
    }

    /// What is to be written of it, unless it has finished.
    pub(crate) fn end(&self) -> Option<ClaimEnd<'_>> {
        match &self.run.outcome {
            Outcome::Ended(ending) => Some(ClaimEnd {
                claim_id: self.claim(),
                ending,
                ran: self.run.ran,
            }),
            Outcome::Finished(_) | Outcome::UnknownClass => None,
        }
    }

    /// Whether the database has refused it before, all else aside.
    pub(crate) fn was_refused(&self) -> bool {
        self.refusals > 0
    }

    pub(crate) fn pair(&self) -> ClaimOf {
        ClaimOf {
            claim_id: self.run.job.claim_id,
            job_id: self.run.job.job_id,
        }
    }
}

/// One that has not been tried yet.
pub(crate) fn pending(run: CompletedRun) -> PendingCompletion {
    PendingCompletion {
        run,
        tries: 0,
        refusals: 0,
        again_at: clock::instant(),
    }
}

/// Leaves out the text, which may be what the database refuses.
pub(crate) fn drop_text(outcome: &mut Outcome) {
    match outcome {
        Outcome::Ended(ending) => ending.drop_text(),
        Outcome::Finished(output) => output.drop_text(),
        Outcome::UnknownClass => {}
    }
}

/// Writes one ending, as if the job had come to `outcome`.
pub(crate) fn write(conn: &mut Conn<'_>, run: &CompletedRun, outcome: &Outcome) -> QueryResult<()> {
    let fence = fence(run);
    if let Outcome::Ended(ending) = outcome {
        end::end(conn, fence, ending, run.ran, run.finished)?;
    } else if let Some(job) = run.traces_of(outcome) {
        let slots = KeySlots::held_if(run.job.is_limited);
        finish::finish_and_keep(conn, fence.process_id, vec![job], run.finished, slots)?;
    }
    Ok(())
}

/// To be tried again after a growing pause.
pub(crate) fn put_aside(mut pending: PendingCompletion) -> PendingCompletion {
    pending.refusals += 1;
    let pause = Duration::from_millis(50 << pending.refusals.min(10));
    pending.again_at = clock::instant() + clock::jittered(pause.min(LONGEST_DEFERRAL));
    pending
}

pub(crate) fn fence(run: &CompletedRun) -> Fence {
    Fence {
        process_id: run.registration.id,
        claim_id: run.job.claim_id,
    }
}

/// Successes of one kind together, and first; then other ends of one kind in
/// small numbers. One by one: what was refused before, lest it hold up others
/// each time, and jobs of unknown classes.
pub(crate) fn grouped(batch: Vec<PendingCompletion>) -> Vec<Vec<PendingCompletion>> {
    let (single, rest): (Vec<_>, Vec<_>) = batch.into_iter().partition(|pending| {
        pending.refusals > 0 || matches!(pending.run.outcome, Outcome::UnknownClass)
    });
    let (finished, others): (Vec<_>, Vec<_>) = rest
        .into_iter()
        .partition(|pending| matches!(pending.run.outcome, Outcome::Finished(_)));
    let mut groups = alike(finished, usize::MAX);
    groups.extend(alike(others, FEW));
    groups.extend(single.into_iter().map(|pending| vec![pending]));
    groups
}

/// Those of one kind together, but not more than `most`.
fn alike(mut all: Vec<PendingCompletion>, most: usize) -> Vec<Vec<PendingCompletion>> {
    let mut groups = Vec::new();
    while let Some(first) = all.first() {
        let of_first = kind(first);
        let (mut same, rest): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|pending| kind(pending) == of_first);
        while same.len() > most {
            groups.push(same.drain(..most).collect());
        }
        groups.push(same);
        all = rest;
    }
    groups
}

/// What the endings of one statement have in common: the process, what
/// becomes of the rows, and whether they leave more behind.
pub(crate) fn kind(pending: &PendingCompletion) -> Kind {
    let run = &pending.run;
    Kind {
        process_id: run.registration.id,
        finished: run.finished,
        leaves_traces: run.traces().is_some_and(|job| job.leaves_traces()),
        is_limited: run.job.is_limited,
    }
}
