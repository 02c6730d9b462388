//! Enqueues jobs with quotas.
//!
//! Jobs that cannot exist already are admitted first and inserted then: what is refused leaves
//! nothing behind. With a unique id or an idempotency key, only the insert shows whether a job is
//! new and counts; what is refused is then undone by a savepoint, with its unique id and key.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::Id;
use crate::db::conn::statement::Statement;
use crate::db::model::job_columns::JobColumns;
use crate::db::model::new_quota::{NewQuota, QuotaRefusal};
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::model::outcome::{AttemptOutcome, JobFailure, ResultOutcome};
use crate::db::table::quotas;
use crate::db::transition::{enqueue, operate};
use diesel::prelude::*;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The kind of failure of a job that a quota has discarded.
pub(crate) const SHED: &str = "quota";

/// Why nothing was enqueued.
#[derive(Debug)]
pub(crate) enum NotEnqueued {
    Quota(QuotaRefusal),
    Failed(diesel::result::Error),
    /// Some of the jobs that were inserted exceed a quota. Contains whether each was new.
    TooMany(Vec<bool>),
}

impl From<diesel::result::Error> for NotEnqueued {
    fn from(error: diesel::result::Error) -> Self {
        NotEnqueued::Failed(error)
    }
}

/// Inserts jobs of which some have a quota, and returns the result of each, in order. If a strict
/// quota refuses one, none is inserted.
pub(crate) fn insert_all(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
) -> Result<Vec<Inserted>, NotEnqueued> {
    let may_exist = rows.iter().any(|row| row.quota.is_some() && row.is_named());
    conn.transaction(|conn| {
        if !may_exist {
            return admit_first(conn, rows, &vec![true; rows.len()]);
        }
        match conn.transaction(|conn| insert_first(conn, rows)) {
            Err(NotEnqueued::TooMany(is_new)) => admit_first(conn, rows, &is_new),
            inserted => inserted,
        }
    })
}

/// The places of the jobs that count, by their quotas.
type ByQuota<'r> = BTreeMap<&'r NewQuota, Vec<usize>>;

fn by_quota<'r>(rows: &'r [NewRow], counts: &[bool]) -> ByQuota<'r> {
    let mut found = ByQuota::new();
    for (place, row) in rows.iter().enumerate() {
        if let Some(quota) = &row.quota
            && counts.get(place) == Some(&true)
        {
            found.entry(quota).or_default().push(place);
        }
    }
    found
}

/// Admits the jobs that count, and inserts them and all others. Those that find no place in a quota
/// that sheds are discarded, the last first.
fn admit_first(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    counts: &[bool],
) -> Result<Vec<Inserted>, NotEnqueued> {
    let mut shed: BTreeMap<usize, QuotaRefusal> = BTreeMap::new();
    for (quota, places) in by_quota(rows, counts) {
        let wanted = places.len() as i64;
        let used = quotas::admit(conn, quota, wanted)?;
        if used.admitted >= wanted {
            continue;
        }
        let class = &rows[places[0]].class_name;
        let refusal = QuotaRefusal::new(class, quota, wanted, used);
        if !quota.limits.shed {
            return Err(NotEnqueued::Quota(refusal));
        }
        let admitted = usize::try_from(used.admitted).unwrap_or(0);
        let late = places.into_iter().skip(admitted);
        shed.extend(late.map(|place| (place, refusal.clone())));
    }
    let kept = rows.iter().enumerate();
    let kept = kept.filter(|(place, _)| !shed.contains_key(place));
    let kept: Vec<NewRow> = kept.map(|(_, row)| row.clone()).collect();
    let mut inserted = insert(conn, &kept)?.into_iter();
    let mut all = Vec::with_capacity(rows.len());
    for (place, row) in rows.iter().enumerate() {
        all.push(match shed.get(&place) {
            Some(refusal) => discard(conn, row, refusal)?,
            None => inserted.next().ok_or(diesel::result::Error::NotFound)?,
        });
    }
    note(conn, rows, &all)?;
    Ok(all)
}

/// Inserts the jobs, and admits those that are new.
fn insert_first(conn: &mut Conn<'_>, rows: &[NewRow]) -> Result<Vec<Inserted>, NotEnqueued> {
    let inserted = insert(conn, rows)?;
    let is_new: Vec<bool> = inserted.iter().map(|one| one.is_new).collect();
    for (quota, places) in by_quota(rows, &is_new) {
        let wanted = places.len() as i64;
        let used = quotas::admit(conn, quota, wanted)?;
        if used.admitted < wanted {
            return Err(NotEnqueued::TooMany(is_new));
        }
    }
    note(conn, rows, &inserted)?;
    Ok(inserted)
}

fn insert(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    match rows {
        [row] => Ok(vec![enqueue::insert(conn, row)?]),
        rows => enqueue::insert_all(conn, rows),
    }
}

/// Notes the new jobs of quotas that limit how many wait.
fn note(conn: &mut Conn<'_>, rows: &[NewRow], inserted: &[Inserted]) -> QueryResult<()> {
    let jobs = rows.iter().zip(inserted).filter_map(|(row, job)| {
        let quota = row.quota.as_ref()?;
        let is_waiting = job.is_new && job.outcome != EnqueueOutcome::Shed;
        (is_waiting && quota.limits.waiting.is_some()).then_some((job.id, &*quota.name))
    });
    let jobs: Vec<(i64, &str)> = jobs.collect();
    quotas::note(conn, &jobs)
}

/// Inserts a job that is discarded already: without execution, unique id, key and slot.
fn discard(conn: &mut Conn<'_>, row: &NewRow, refusal: &QuotaRefusal) -> QueryResult<Inserted> {
    static DISCARD: LazyLock<(JobColumns, String)> = LazyLock::new(|| {
        let columns = JobColumns::all();
        let text = format!(
            "INSERT INTO solid_queue_jobs ({}) VALUES ({}) RETURNING id",
            columns.names(),
            columns.parameters()
        );
        (columns, text)
    });
    let row = NewRow {
        idempotency_key: None,
        unique_id: None,
        limit: None,
        ..row.clone()
    };
    let (columns, text) = &*DISCARD;
    let insert = columns.bind(Statement::new(text), &row).unkept();
    let job: Id = insert.get_result(conn)?;
    let failure = JobFailure::new(
        SHED,
        &format!("{refusal}, and sheds the jobs that exceed it"),
    );
    let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    operate::end_waiting(conn, &[job.id], attempt, result, &failure)?;
    Ok(Inserted::new(job.id, EnqueueOutcome::Shed))
}
