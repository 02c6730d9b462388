//! `solid_queue_jobs`: reading and updating the rows of jobs.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, Lossy, id_list};
use crate::db::conn::statement::{InputRows, Statement};
use crate::db::model::claim::{ClaimOf, FinishedRow};
use crate::db::model::extras::{BareArguments, FollowUpJob, StoredPolicy, Traceparent};
use crate::db::model::outcome::{NewResult, ResultOf, ResultOutcome};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use std::collections::{BTreeMap, BTreeSet};

// --- The ids of new jobs ---

/// Assigns the ids of this many jobs, ascending. Not all of them need to be used.
pub(crate) fn reserve(conn: &mut Conn<'_>, count: usize) -> QueryResult<Vec<i64>> {
    let wanted = count as i64;
    match conn.dialect() {
        Dialect::Postgres => {
            let text = "WITH once AS MATERIALIZED (SELECT pg_get_serial_sequence('solid_queue_jobs', 'id')::regclass AS ids) \
                 SELECT nextval(once.ids) AS id FROM once CROSS JOIN generate_series(1, $1) AS number";
            let ids: Vec<Id> = Statement::new(text).bind(wanted).load(conn)?;
            Ok(ids.into_iter().map(|row| row.id).collect())
        }
        Dialect::Sqlite => {
            let last = match advance(conn, wanted).optional()? {
                Some(last) => last,
                None => {
                    // There is no row before the first job, and no constraint on it.
                    let text =
                        "INSERT INTO sqlite_sequence (name, seq) VALUES ('solid_queue_jobs', 0)";
                    Statement::new(text).execute(conn)?;
                    advance(conn, wanted)?
                }
            };
            Ok((last.id - wanted + 1..=last.id).collect())
        }
    }
}

fn advance(conn: &mut Conn<'_>, by: i64) -> QueryResult<Id> {
    let text = "UPDATE sqlite_sequence SET seq = seq + $1 WHERE name = 'solid_queue_jobs' \
         RETURNING seq AS id";
    Statement::new(text).bind(by).get_result(conn)
}

// --- The rows ---

#[derive(QueryableByName)]
struct LastClaim {
    #[diesel(sql_type = BigInt)]
    last_claim_id: i64,
}

/// Returns those of the claims whose job does not exist: where finished jobs are deleted, an ending
/// whose COMMIT got no answer leaves no other trace.
pub(crate) fn claims_without_job(conn: &mut Conn<'_>, claims: &[ClaimOf]) -> QueryResult<Vec<i64>> {
    let jobs: Vec<i64> = claims.iter().map(|claim| claim.job_id).collect();
    let there = existing(conn, &jobs)?;
    Ok(claims
        .iter()
        .filter(|claim| !there.contains(&claim.job_id))
        .map(|claim| claim.claim_id)
        .collect())
}

fn existing(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<BTreeSet<i64>> {
    let text = "SELECT id FROM solid_queue_jobs WHERE id IN {in $1}";
    let there: Vec<Id> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    Ok(there.into_iter().map(|row| row.id).collect())
}

/// Returns whether the owner of this claim has ended it: the job's row names it, or was deleted
/// because finished jobs are not kept.
pub(crate) fn ended_by_owner(conn: &mut Conn<'_>, claim: ClaimOf) -> QueryResult<bool> {
    Ok(
        !ended_claims(conn, &[claim])?.is_empty()
            || !claims_without_job(conn, &[claim])?.is_empty(),
    )
}

/// Returns those of the claims that their owner has ended, for a worker whose COMMIT got no answer.
pub(crate) fn ended_claims(conn: &mut Conn<'_>, claims: &[ClaimOf]) -> QueryResult<Vec<i64>> {
    let jobs: Vec<i64> = claims.iter().map(|claim| claim.job_id).collect();
    let text = "SELECT last_claim_id FROM solid_queue_jobs WHERE id IN {in $1} AND last_claim_id IS NOT NULL";
    let ended: Vec<LastClaim> = Statement::new(text).bind(id_list(&jobs)).load(conn)?;
    Ok(ended
        .into_iter()
        .map(|row| row.last_claim_id)
        .filter(|id| claims.iter().any(|claim| claim.claim_id == *id))
        .collect())
}

/// Returns a condition: Ruby enqueued the job `job`. With envelopes for Active Job, those of other programs have an
/// `active_job_id` too, of which this is the beginning: `windlass-`.
pub fn is_of_ruby(job: &str) -> String {
    format!("(coalesce({job}.active_job_id, 'windlass-') NOT LIKE 'windlass-%')")
}

/// A job whose arguments may change.
#[derive(Debug, QueryableByName)]
pub(crate) struct EditableJob {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = BareArguments)]
    pub(crate) arguments: String,
    /// `claimed`, `ended`, or `open`.
    #[diesel(sql_type = Text)]
    pub(crate) place: String,
    /// True if a worker has stored its class as internal.
    #[diesel(sql_type = Bool)]
    pub(crate) is_internal: bool,
}

/// Reads a job to edit. Returns `None` if it does not exist.
pub(crate) fn editable(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<EditableJob>> {
    let text = "SELECT class_name, coalesce(arguments, 'null') AS arguments, \
         CASE WHEN finished_at IS NOT NULL THEN 'ended' WHEN EXISTS \
           (SELECT 1 FROM solid_queue_claimed_executions c WHERE c.job_id = j.id) THEN 'claimed' ELSE 'open' END AS place, \
         EXISTS (SELECT 1 FROM windlass_classes k WHERE k.class_name = j.class_name AND k.internal) AS is_internal \
         FROM solid_queue_jobs j WHERE id = $1";
    Statement::new(text)
        .bind(job)
        .uncached()
        .get_result(conn)
        .optional()
}

/// Replaces the arguments of a job, whose execution is locked.
pub(crate) fn set_arguments(conn: &mut Conn<'_>, job: i64, arguments: &str) -> QueryResult<()> {
    let text = "UPDATE solid_queue_jobs SET arguments = $1, updated_at = {now} WHERE id = $2";
    Statement::new(text)
        .bind(arguments)
        .bind(job)
        .uncached()
        .changes(conn)
        .map(drop)
}

/// Sets when each of the jobs is due, whose executions the caller has taken.
pub(crate) fn set_times(conn: &mut Conn<'_>, times: &[(i64, String)]) -> QueryResult<()> {
    let text = "UPDATE solid_queue_jobs SET scheduled_at = {time due.at}, updated_at = {now} \
         FROM (SELECT CAST(value ->> 0 AS bigint) AS id, value ->> 1 AS at FROM {rows $1}) AS due \
         WHERE solid_queue_jobs.id = due.id";
    let times = serde_json::to_string(times).unwrap_or_default();
    Statement::new(text)
        .bind(times)
        .uncached()
        .changes(conn)
        .map(drop)
}

/// The row of a job whose run has ended.
#[derive(Debug, QueryableByName)]
pub(crate) struct EndedJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) queue_name: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) unique_id: Option<String>,
    #[diesel(sql_type = Integer)]
    pub(crate) attempts: i32,
    #[diesel(sql_type = Integer)]
    crash_count: i32,
    #[diesel(sql_type = Nullable<Text>)]
    policy: Option<String>,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    traceparent: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) batch_id: Option<i64>,
    /// True if it has a semaphore of Ruby, whose slot the end of the claim gives back.
    #[diesel(sql_type = Bool)]
    pub(crate) has_semaphore: bool,
    /// True if each of its starts takes a token of a rate.
    #[diesel(sql_type = Bool)]
    pub(crate) has_rate: bool,
}

impl EndedJob {
    /// Returns the trace context of its enqueue, which follow-up jobs inherit.
    pub(crate) fn traceparent(&self) -> Option<Traceparent> {
        Traceparent::parse(&self.traceparent)
    }

    fn policy(&self) -> Option<StoredPolicy> {
        serde_json::from_str(self.policy.as_deref()?).ok()
    }

    /// Returns the job that its policy enqueues when it fails.
    pub(crate) fn on_failure(&self) -> Option<FollowUpJob> {
        self.policy()?.on_failure
    }

    /// Returns whether it was enqueued with an expiry.
    pub(crate) fn may_expire(&self) -> bool {
        let policy = self.policy.as_deref();
        policy.is_some_and(|text| text.contains("\"expiry\""))
    }

    /// Returns how many runs this row counts.
    pub(crate) fn runs(&self) -> i32 {
        self.attempts.saturating_add(self.crash_count)
    }

    /// Returns the result to store, if there is one. `uncounted` runs are missing from the counts of
    /// this row.
    pub(crate) fn result<'j>(
        &'j self,
        outcome: ResultOutcome,
        error: &'j str,
        uncounted: i32,
        row: FinishedRow,
    ) -> Option<NewResult<'j>> {
        NewResult::of_failed(
            ResultOf {
                job_id: self.id,
                attempt: self.runs().saturating_add(uncounted),
                class_name: &self.class_name,
                unique_id: self.unique_id.as_deref(),
                batch_id: self.batch_id,
            },
            outcome,
            error,
            self.policy().and_then(|policy| policy.keep_result),
            row,
        )
    }
}

/// Reads the rows of jobs whose claims have ended in this transaction.
pub(crate) fn ended(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<EndedJob>> {
    let text = "SELECT id, class_name, queue_name, unique_id, attempts, crash_count, policy, \
         coalesce(traceparent, '') AS traceparent, batch_id, concurrency_key IS NOT NULL AND concurrency_slots IS NULL AS has_semaphore, gate IS NOT NULL AS has_rate \
         FROM solid_queue_jobs WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(jobs)).load(conn)
}

#[derive(QueryableByName)]
struct Arguments {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text, deserialize_as = BareArguments)]
    arguments: String,
}

/// Returns the arguments of the jobs that have some, by job id.
pub(crate) fn arguments_of(
    conn: &mut Conn<'_>,
    jobs: &[i64],
) -> QueryResult<BTreeMap<i64, String>> {
    let text =
        "SELECT id, arguments FROM solid_queue_jobs WHERE id IN {in $1} AND arguments IS NOT NULL";
    let rows: Vec<Arguments> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    Ok(rows
        .into_iter()
        .map(|row| (row.id, row.arguments))
        .collect())
}

/// The changes to the row of a job whose run has ended.
#[derive(Debug)]
pub(crate) struct JobUpdate {
    pub(crate) id: i64,
    pub(crate) uses_attempt: bool,
    pub(crate) is_crash: bool,
    /// The claim that its owner has ended.
    pub(crate) last_claim: Option<i64>,
    pub(crate) is_finished: bool,
}

impl JobUpdate {
    /// Returns whether anything changes.
    pub(crate) fn is_any(&self) -> bool {
        self.uses_attempt || self.is_crash || self.is_finished || self.last_claim.is_some()
    }
}

/// Writes the counts and the last claims of jobs whose runs have ended. A count at its maximum, as
/// another program may leave it, stays there.
pub(crate) fn update_ended(conn: &mut Conn<'_>, updates: &[JobUpdate]) -> QueryResult<()> {
    if updates.is_empty() {
        return Ok(());
    }
    let row = |update: &JobUpdate| {
        [
            update.id.into(),
            update.uses_attempt.into(),
            update.is_crash.into(),
            update.last_claim.into(),
            update.is_finished.into(),
        ]
    };
    let input = InputRows {
        names: [
            "job_id",
            "uses_attempt",
            "is_crash",
            "last_claim",
            "is_finished",
        ],
        rows: updates.iter().map(row).collect(),
    };
    let text = format!(
        "UPDATE solid_queue_jobs SET \
           attempts = CASE WHEN input.uses_attempt THEN {{next attempts}} ELSE attempts END, \
           crash_count = CASE WHEN input.is_crash THEN {{next crash_count}} ELSE crash_count END, \
           last_claim_id = coalesce(input.last_claim, last_claim_id), \
           finished_at = CASE WHEN input.is_finished THEN {{now}} ELSE finished_at END, \
           updated_at = {{now}} \
         FROM {} WHERE solid_queue_jobs.id = input.job_id",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)
}

/// Locks the rows of jobs, in order, and returns the jobs without those that other transactions have
/// locked.
pub(crate) fn lock_free(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT id FROM solid_queue_jobs WHERE id IN {in $1} ORDER BY id {lock skip}";
    let free: Vec<Id> = Statement::new(text)
        .uncached()
        .bind(id_list(jobs))
        .load(conn)?;
    if free.len() == jobs.len() {
        return Ok(jobs.to_vec());
    }
    let free: BTreeSet<i64> = free.into_iter().map(|row| row.id).collect();
    let there = existing(conn, jobs)?;
    let is_free = |job: &i64| free.contains(job) || !there.contains(job);
    Ok(jobs.iter().copied().filter(is_free).collect())
}

/// The column `policy` of a job.
#[derive(Debug, QueryableByName)]
pub(crate) struct PolicyRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
}

/// Locks the rows of jobs, in order, and returns their policies.
pub(crate) fn lock_policies(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<Vec<PolicyRow>> {
    let text = "SELECT id, policy FROM solid_queue_jobs WHERE id IN {in $1} ORDER BY id {lock}";
    Statement::new(text)
        .bind(id_list(jobs))
        .uncached()
        .load(conn)
}

/// Writes the policies of jobs, whose rows the caller has locked. An empty one is none.
pub(crate) fn set_policies(conn: &mut Conn<'_>, policies: &[(i64, String)]) -> QueryResult<()> {
    if policies.is_empty() {
        return Ok(());
    }
    let row = |(id, policy): &'_ (i64, String)| [(*id).into(), policy.clone().into()];
    let input = InputRows {
        names: ["job_id", "policy"],
        rows: policies.iter().map(row).collect(),
    };
    let text = format!(
        "UPDATE solid_queue_jobs SET policy = CASE WHEN length(input.policy) > 2 THEN input.policy END, updated_at = {{now}} \
         FROM {} WHERE solid_queue_jobs.id = input.job_id",
        input.item(conn.dialect())
    );
    let params = input.params(conn.dialect());
    Statement::new(text).bind_all(params).execute(conn)
}

/// Returns whether the job has this idempotency key.
pub(crate) fn has_key(conn: &mut Conn<'_>, job: i64, key: &str) -> QueryResult<bool> {
    let text = "SELECT id FROM solid_queue_jobs WHERE id = $1 AND idempotency_key = $2";
    let found: Option<Id> = Statement::new(text)
        .bind(job)
        .bind(key)
        .uncached()
        .get_result(conn)
        .optional()?;
    Ok(found.is_some())
}
