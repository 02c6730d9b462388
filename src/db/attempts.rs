//! `windlass_attempts`: how runs ended that did not succeed, and what the end
//! of one means for its job.

use super::claimed::{self, Ended, Fence, Finished};
use super::conn::{Conn, on};
use super::failed::{self, Failure};
use super::jobs::timestamp;
use super::results::{self, ResultOutcome};
use super::scheduled::micros;
use super::sql::{cached, sql};
use super::unique;
use chrono::{DateTime, NaiveDateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is to become of a job whose run did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// It has failed for good.
    Fail(Failure),
    /// It is tried again after the delay.
    Retry(Failure, Duration),
    /// It ends, and nobody minds.
    Discard(Failure),
    /// It ends because somebody asked for that.
    Cancel(Failure),
    /// It runs again after the delay, and this run was no attempt.
    Snooze(Duration),
    /// It was cut off by its process, for this reason: it runs again at once,
    /// and this run was neither an attempt nor a crash.
    Release(String),
}

impl Ending {
    /// Leaves out the text of the failure, which a database may refuse for
    /// reasons of its own: a job must be able to fail all the same.
    pub(crate) fn drop_text(&mut self) {
        match self {
            Ending::Fail(failure)
            | Ending::Retry(failure, _)
            | Ending::Discard(failure)
            | Ending::Cancel(failure) => {
                *failure =
                    Failure::new("unrecordable", "the database refused the text of the error");
            }
            Ending::Snooze(_) | Ending::Release(_) => {}
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// With an error, and the job was to be tried again.
    Retried,
    /// With the failure of the job.
    Failed,
    /// By the job's own word, which made it end without having failed.
    Discarded,
    /// By request.
    Cancelled,
    /// With the death of its process, and the job was to run again.
    Crashed,
}

impl AttemptOutcome {
    fn column(self) -> &'static str {
        match self {
            AttemptOutcome::Retried => "retried",
            AttemptOutcome::Failed => "failed",
            AttemptOutcome::Discarded => "discarded",
            AttemptOutcome::Cancelled => "cancelled",
            AttemptOutcome::Crashed => "crashed",
        }
    }

    fn of_column(text: &str) -> Self {
        match text {
            "retried" => AttemptOutcome::Retried,
            "discarded" => AttemptOutcome::Discarded,
            "cancelled" => AttemptOutcome::Cancelled,
            "crashed" => AttemptOutcome::Crashed,
            _ => AttemptOutcome::Failed,
        }
    }
}

/// When a run began.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Began {
    /// So long ago, by the runner's monotonic clock.
    Ago(Duration),
    /// At this time, by the database's clock. `None`: it never began.
    At(Option<NaiveDateTime>),
}

/// A claim that has just ended, in the transaction that ended it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedRun {
    pub(super) process_id: i64,
    pub(super) claim_id: i64,
    pub(super) job_id: i64,
    pub(super) began: Began,
    /// Whether its owner ended it, who may ask later whether that got through.
    pub(super) by_owner: bool,
    /// What becomes of the row of a job that ends without having failed.
    pub(super) finished: Finished,
}

impl EndedRun {
    /// Whether a thread had it.
    fn has_begun(&self) -> bool {
        !matches!(self.began, Began::At(None))
    }
}

/// A claim, how it is to end, and for how long its job ran.
pub(crate) type End<'a> = (i64, &'a Ending, Duration);

/// Ends a claim in the way that was decided, unless somebody has asked for
/// the job to be cancelled meanwhile, and says which it was. `None`: fenced.
pub(crate) fn end(
    conn: &mut Conn<'_>,
    fence: Fence,
    ending: &Ending,
    ran: Duration,
    finished: Finished,
) -> QueryResult<Option<Ending>> {
    let ends = [(fence.claim_id, ending, ran)];
    let mut ended = end_all(conn, fence.process_id, &ends, finished)?;
    Ok(ended.pop().map(|(_, ending)| ending))
}

/// Claims that have ended, and how.
type Endings = Vec<(i64, Ending)>;

/// Ends claims of a process like [`end`], all in one transaction. Those that
/// are missing in the answer were fenced.
pub(crate) fn end_all(
    conn: &mut Conn<'_>,
    process_id: i64,
    ends: &[End<'_>],
    finished: Finished,
) -> QueryResult<Endings> {
    conn.transaction(|conn| {
        let held = claimed::end(conn, process_id, &claims(ends))?;
        follow_all(conn, process_id, ends, (held, finished))
    })
}

/// The same for those of the claims that no other transaction has locked; the
/// others that are still held are returned too.
pub(crate) fn end_free(
    conn: &mut Conn<'_>,
    process_id: i64,
    ends: &[End<'_>],
    finished: Finished,
) -> QueryResult<(Endings, Vec<i64>)> {
    conn.transaction(|conn| {
        let (held, written) = claimed::end_free(conn, process_id, &claims(ends))?;
        let done = follow_all(conn, process_id, ends, (held, finished))?;
        Ok((done, written.busy))
    })
}

fn claims(ends: &[End<'_>]) -> Vec<i64> {
    ends.iter().map(|(claim, ..)| *claim).collect()
}

/// Does what follows the ends of claims.
fn follow_all(
    conn: &mut Conn<'_>,
    process_id: i64,
    ends: &[End<'_>],
    (held, finished): (Vec<Ended>, Finished),
) -> QueryResult<Endings> {
    let held: BTreeMap<i64, Ended> = held.into_iter().map(|row| (row.claim_id, row)).collect();
    let mut done = Vec::with_capacity(held.len());
    for (claim_id, ending, ran) in ends {
        let Some(ended) = held.get(claim_id) else {
            continue;
        };
        let ending = if ended.cancelled {
            Ending::Cancel(cancelled())
        } else {
            (*ending).clone()
        };
        let run = EndedRun {
            process_id,
            claim_id: *claim_id,
            job_id: ended.job_id,
            began: Began::Ago(*ran),
            by_owner: true,
            finished,
        };
        follow(conn, &run, &ending)?;
        done.push((*claim_id, ending));
    }
    Ok(done)
}

/// The failure of a job that was cancelled while it ran.
pub(super) fn cancelled() -> Failure {
    Failure::new("cancelled", "the job was cancelled while it ran")
}

/// Does what follows the end of a claim.
pub(super) fn follow(conn: &mut Conn<'_>, run: &EndedRun, ending: &Ending) -> QueryResult<()> {
    match ending {
        Ending::Fail(failure) => {
            failed::insert(conn, run.job_id, failure)?;
            insert(conn, run, AttemptOutcome::Failed, failure)?;
            count(conn, run)
        }
        Ending::Retry(failure, delay) => {
            claimed::make_waiting(conn, &[run.job_id], Some(*delay))?;
            insert(conn, run, AttemptOutcome::Retried, failure)?;
            count(conn, run)
        }
        Ending::Discard(failure) => {
            insert(conn, run, AttemptOutcome::Discarded, failure)?;
            close(conn, run, ResultOutcome::Discarded, failure)
        }
        Ending::Cancel(failure) if !run.has_begun() => {
            insert_waiting(conn, &[run.job_id], AttemptOutcome::Cancelled, failure)?;
            close(conn, run, ResultOutcome::Cancelled, failure)
        }
        Ending::Cancel(failure) => {
            insert(conn, run, AttemptOutcome::Cancelled, failure)?;
            close(conn, run, ResultOutcome::Cancelled, failure)
        }
        Ending::Snooze(_) | Ending::Release(_) => {
            let delay = match ending {
                Ending::Snooze(delay) => Some(*delay),
                _ => None,
            };
            claimed::make_waiting(conn, &[run.job_id], delay)?;
            if run.by_owner {
                claimed::note_claim(conn, run.claim_id, run.job_id)?;
            }
            Ok(())
        }
    }
}

/// One attempt was used.
pub(super) fn count(conn: &mut Conn<'_>, run: &EndedRun) -> QueryResult<()> {
    // A count that can grow no more, as other programs may leave it, stays.
    let text = conn.write(
        "UPDATE solid_queue_jobs SET attempts = {next attempts}, last_claim_id = coalesce($1, last_claim_id), \
         updated_at = {now} WHERE id = $2",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<Nullable<BigInt>, _>(run.by_owner.then_some(run.claim_id))
            .bind::<BigInt, _>(run.job_id)
    )
    .execute(c))
    .map(drop)
}

/// The job has come to its end without having failed.
fn close(
    conn: &mut Conn<'_>,
    run: &EndedRun,
    outcome: ResultOutcome,
    failure: &Failure,
) -> QueryResult<()> {
    let ran = i32::from(run.has_begun());
    let named = results::record(conn, &[run.job_id], outcome, failure, ran)?;
    if run.finished == Finished::Delete {
        super::clear::delete(conn, &[run.job_id])?;
    } else {
        super::steps::remove(conn, &[run.job_id])?;
        if run.has_begun() {
            count(conn, run)?;
        } else if run.by_owner {
            claimed::note_claim(conn, run.claim_id, run.job_id)?;
        }
        let text = conn.write("UPDATE solid_queue_jobs SET finished_at = {now} WHERE id = $1");
        on!(conn, |c| cached(sql(text).bind::<BigInt, _>(run.job_id))
            .execute(c))?;
    }
    if !named.is_empty() {
        unique::unblock(conn, &named)?;
    }
    Ok(())
}

/// How many attempts of a job are kept.
const KEPT: i64 = 20;

/// Writes an attempt down, before its job's count has changed.
pub(super) fn insert(
    conn: &mut Conn<'_>,
    run: &EndedRun,
    outcome: AttemptOutcome,
    failure: &Failure,
) -> QueryResult<()> {
    let (at, ago) = match run.began {
        Began::At(at) => (at.map(timestamp), None),
        Began::Ago(ran) => (None, Some(-micros(ran))),
    };
    let text = conn.write(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, place, \
           process_name, hostname, pid, started_at, ended_at) \
         SELECT j.id, $1, {next j.attempts}, $2, $3, $4, $5, p.name, p.hostname, p.pid, \
           coalesce({time $6}, {later $7}), {now} \
         FROM solid_queue_jobs j LEFT JOIN solid_queue_processes p ON p.id = $8 WHERE j.id = $9",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(run.claim_id)
            .bind::<Text, _>(outcome.column())
            .bind::<Text, _>(&failure.kind)
            .bind::<Text, _>(&failure.message)
            .bind::<Nullable<Text>, _>(&failure.place)
            .bind::<Nullable<Text>, _>(at)
            .bind::<Nullable<BigInt>, _>(ago)
            .bind::<BigInt, _>(run.process_id)
            .bind::<BigInt, _>(run.job_id)
    )
    .execute(c))?;
    let text = conn.write(
        "DELETE FROM windlass_attempts WHERE job_id = $1 AND id <= \
         (SELECT id FROM windlass_attempts WHERE job_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<BigInt, _>(run.job_id)
            .bind::<BigInt, _>(KEPT)
    )
    .execute(c))
    .map(drop)
}

/// Writes down that jobs have ended before anybody had begun them.
pub(super) fn insert_waiting(
    conn: &mut Conn<'_>,
    jobs: &[i64],
    outcome: AttemptOutcome,
    failure: &Failure,
) -> QueryResult<()> {
    let text = conn.write(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
         SELECT id, 0, attempts, $1, $2, $3, {now} FROM solid_queue_jobs WHERE id IN {in $4} ORDER BY id",
    );
    on!(conn, |c| cached(
        sql(text)
            .bind::<Text, _>(outcome.column())
            .bind::<Text, _>(&failure.kind)
            .bind::<Text, _>(&failure.message)
            .bind::<Text, _>(super::sql::id_list(jobs))
    )
    .execute(c))
    .map(drop)
}

/// An attempt at a job that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// 1 for the first. A run that was cut short by a crash has the number of
    /// the attempt that it would have been, and a job that was cancelled while
    /// it waited that of its last attempt.
    pub attempt: u32,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// The type of the error, or `panic`, `crashed`, `timeout` and the like.
    pub kind: String,
    /// The error's message.
    pub message: String,
    /// `file:line:column` of a panic.
    pub place: Option<String>,
    /// The name of the process that ran it.
    pub process_name: Option<String>,
    /// The host of that process.
    pub hostname: Option<String>,
    /// The process id on that host.
    pub pid: Option<i32>,
    /// When it began, by the database's clock.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended, by the database's clock.
    pub ended_at: DateTime<Utc>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Integer)]
    attempt: i32,
    #[diesel(sql_type = Text)]
    outcome: String,
    #[diesel(sql_type = Text)]
    kind: String,
    #[diesel(sql_type = Text)]
    message: String,
    #[diesel(sql_type = Nullable<Text>)]
    place: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    process_name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    hostname: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pid: Option<i32>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    started_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Timestamp)]
    ended_at: NaiveDateTime,
}

/// The attempts that are kept of a job, the newest first.
pub(crate) fn of_job(conn: &mut Conn<'_>, job_id: i64) -> QueryResult<Vec<Attempt>> {
    let text = conn.write(
        "SELECT attempt, outcome, kind, message, place, process_name, hostname, pid, \
           {moment started_at} AS started_at, coalesce({moment ended_at}, {now}) AS ended_at \
         FROM windlass_attempts WHERE job_id = $1 ORDER BY id DESC",
    );
    let rows: Vec<Row> = on!(conn, |c| cached(sql(text).bind::<BigInt, _>(job_id))
        .load(c))?;
    Ok(rows
        .into_iter()
        .map(|row| Attempt {
            attempt: u32::try_from(row.attempt).unwrap_or(0),
            outcome: AttemptOutcome::of_column(&row.outcome),
            kind: row.kind,
            message: row.message,
            place: row.place,
            process_name: row.process_name,
            hostname: row.hostname,
            pid: row.pid,
            started_at: row.started_at.map(|time| time.and_utc()),
            ended_at: row.ended_at.and_utc(),
        })
        .collect())
}
