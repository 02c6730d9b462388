//! Enqueues jobs with quotas.
//!
//! Jobs that cannot exist already are admitted first and inserted then: what is refused leaves
//! nothing behind. With a unique id or an idempotency key, only the insert shows whether a job is
//! new and counts; what is refused is then undone by a savepoint, with its unique id and key.

use crate::db::conn::connection::Conn;
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewQuota, NewRow, Per, QuotaRefusal};
use crate::db::model::outcome::{AttemptOutcome, JobFailure, ResultOutcome};
use crate::db::table::blocked;
use crate::db::table::quotas::{self, QuotaJob, QuotaSlots, TakenBySlot};
use crate::db::transition::enqueue;
use crate::db::transition::flows::leave::end_unstarted;
use diesel::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of failure of a job that a quota has discarded.
pub(crate) const SHED: &str = "quota";

/// Why nothing was enqueued.
#[derive(Debug)]
pub(crate) enum NotEnqueued {
    Quota(QuotaRefusal),
    Failed(diesel::result::Error),
    /// Some of the jobs that were inserted exceed a quota, or others were new than were counted.
    /// Contains which of them count.
    TooMany(Vec<bool>),
    /// Rows are missing in which the places of this quota are counted.
    Uncounted(NewQuota, (Per, i64)),
}

impl From<diesel::result::Error> for NotEnqueued {
    fn from(error: diesel::result::Error) -> Self {
        NotEnqueued::Failed(error)
    }
}

/// Inserts jobs of which some have a quota, and returns the result of each, in order. If a strict
/// quota refuses one, none is inserted.
///
/// The first enqueue of a quota creates the rows in which its places are counted: in a transaction
/// of its own unless the caller has one open, as others would wait for the end of that.
pub(crate) fn insert_all(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
) -> Result<Vec<Inserted>, NotEnqueued> {
    with_slots(conn, rows.len(), |conn| insert_once(conn, rows))
}

/// Does this in a transaction, again whenever rows were missing in which places are counted.
pub(crate) fn with_slots<T>(
    conn: &mut Conn<'_>,
    jobs: usize,
    mut insert: impl FnMut(&mut Conn<'_>) -> Result<T, NotEnqueued>,
) -> Result<T, NotEnqueued> {
    // Once for each limit of each quota is enough, unless others clear them meanwhile.
    for _ in 0..3 * jobs {
        match conn.transaction(&mut insert) {
            Err(NotEnqueued::Uncounted(quota, (per, limit))) => {
                let quota = &quota;
                quotas::create(conn, QuotaSlots { quota, per, limit })?;
            }
            done => return done,
        }
    }
    conn.transaction(insert)
}

/// The most attempts of an enqueue during which jobs of the same names came or went.
const ROUNDS: usize = 20;

/// Inserts the jobs, in the transaction that is open.
pub(crate) fn insert_once(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
) -> Result<Vec<Inserted>, NotEnqueued> {
    let may_exist = rows.iter().any(|row| row.quota.is_some() && row.is_named());
    if !may_exist {
        return admit_first(conn, rows, &vec![true; rows.len()]);
    }
    let mut inserted = conn.transaction(|conn| insert_first(conn, rows));
    for _ in 0..ROUNDS {
        let Err(NotEnqueued::TooMany(is_new)) = inserted else {
            return inserted;
        };
        inserted = conn.transaction(|conn| admit_first(conn, rows, &is_new));
    }
    inserted
}

/// The positions of the jobs that count, by their quotas.
type ByQuota<'r> = BTreeMap<&'r NewQuota, Vec<usize>>;

fn by_quota<'r>(rows: &'r [NewRow], counts: &[bool]) -> ByQuota<'r> {
    let mut found = ByQuota::new();
    for (position, row) in rows.iter().enumerate() {
        if let Some(quota) = &row.quota
            && counts.get(position) == Some(&true)
        {
            found.entry(quota).or_default().push(position);
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
    let mut backlog = BacklogSlots::new();
    for (quota, positions) in by_quota(rows, counts) {
        let wanted = positions.len() as i64;
        let admitted = admit(conn, quota, wanted)?;
        if let Some(limit) = admitted.exceeded {
            let class = &rows[positions[0]].class_name;
            let left = match quota.limits.shed {
                false => quotas::left(conn, limit.0)?,
                true => None,
            };
            let refusal = QuotaRefusal::new(class, quota, limit, wanted, left);
            if !quota.limits.shed {
                return Err(NotEnqueued::Quota(refusal));
            }
            let late = positions.iter().skip(admitted.jobs);
            shed.extend(late.map(|position| (*position, refusal.clone())));
        }
        backlog.extend(positions.into_iter().zip(admitted.backlog_slots));
    }
    let kept = rows.iter().enumerate();
    let kept = kept.filter(|(position, _)| !shed.contains_key(position));
    let kept: Vec<NewRow> = kept.map(|(_, row)| row.clone()).collect();
    let mut inserted = insert_admitted(conn, &kept)?.into_iter();
    let mut all = Vec::with_capacity(rows.len());
    for (position, row) in rows.iter().enumerate() {
        all.push(match shed.get(&position) {
            Some(refusal) => discard(conn, row, refusal)?,
            None => inserted.next().ok_or(diesel::result::Error::NotFound)?,
        });
    }
    if let Some(corrected) = corrected(rows, counts, &all) {
        return Err(NotEnqueued::TooMany(corrected));
    }
    note(conn, rows, &all, &backlog)?;
    Ok(all)
}

/// Returns which jobs count, if others than those were new: the job behind one that was discarded
/// has its name now, and other transactions may have taken a name or given one back.
fn corrected(rows: &[NewRow], counts: &[bool], inserted: &[Inserted]) -> Option<Vec<bool>> {
    let is_new: Vec<bool> = inserted.iter().map(|job| job.is_new).collect();
    let is_wrong = |position: &usize| {
        rows[*position].quota.is_some() && is_new[*position] != counts[*position]
    };
    let wrong: Vec<usize> = (0..rows.len()).filter(is_wrong).collect();
    if wrong.is_empty() {
        return None;
    }
    let new = wrong.iter().filter(|position| is_new[**position]);
    let names: BTreeSet<_> = new.flat_map(|position| rows[*position].names()).collect();
    let has_such = |row: &NewRow| row.names().any(|name| names.contains(&name));
    // One round for all that have the name of a discarded job.
    let counts = rows.iter().zip(is_new);
    Some(
        counts
            .map(|(row, is_new)| is_new || has_such(row))
            .collect(),
    )
}

/// Inserts the jobs, and admits those that are new.
fn insert_first(conn: &mut Conn<'_>, rows: &[NewRow]) -> Result<Vec<Inserted>, NotEnqueued> {
    let inserted = insert_admitted(conn, rows)?;
    let is_new: Vec<bool> = inserted.iter().map(|one| one.is_new).collect();
    let mut backlog = BacklogSlots::new();
    for (quota, positions) in by_quota(rows, &is_new) {
        let admitted = admit(conn, quota, positions.len() as i64)?;
        if admitted.exceeded.is_some() {
            return Err(NotEnqueued::TooMany(is_new));
        }
        backlog.extend(positions.into_iter().zip(admitted.backlog_slots));
    }
    note(conn, rows, &inserted, &backlog)?;
    Ok(inserted)
}

/// The slots from which jobs have their places among those that wait, by the positions of the jobs in the
/// enqueue.
type BacklogSlots = BTreeMap<usize, i64>;

/// The jobs that a quota has admitted.
struct Admitted {
    jobs: usize,
    /// The slot of each, if the quota limits how many wait.
    backlog_slots: Vec<i64>,
    /// The limit that refuses the others.
    exceeded: Option<(Per, i64)>,
}

/// Takes places for up to `wanted` jobs.
fn admit(conn: &mut Conn<'_>, quota: &NewQuota, wanted: i64) -> Result<Admitted, NotEnqueued> {
    let (mut left, mut exceeded) = (wanted, None);
    let mut taken: Vec<(Per, TakenBySlot)> = Vec::new();
    for (per, limit) in quota.limits.set() {
        let found = take(conn, QuotaSlots { quota, per, limit }, left)?;
        let count = found.iter().map(|(_, jobs)| jobs).sum();
        if count < left {
            // A strict one refuses all of them.
            exceeded.get_or_insert((per, limit));
            left = count;
        }
        taken.push((per, found));
    }
    let mut backlog_slots = Vec::new();
    for (per, found) in taken {
        let (kept, excess) = split(found, left);
        if !excess.is_empty() {
            let excess = excess
                .iter()
                .map(|(slot, jobs)| (&*quota.name, *slot, *jobs));
            quotas::give_back(conn, per, &excess.collect::<Vec<_>>())?;
        }
        if per == Per::Waiting {
            let slots = kept.into_iter();
            backlog_slots = slots
                .flat_map(|(slot, jobs)| (0..jobs).map(move |_| slot))
                .collect();
        }
    }
    Ok(Admitted {
        jobs: usize::try_from(left).unwrap_or(0),
        backlog_slots,
        exceeded,
    })
}

/// Takes places, also those of jobs that do not wait any more.
fn take(
    conn: &mut Conn<'_>,
    slots: QuotaSlots<'_>,
    wanted: i64,
) -> Result<TakenBySlot, NotEnqueued> {
    let count = |taken: &TakenBySlot| -> i64 { taken.iter().map(|(_, jobs)| jobs).sum() };
    let mut taken = quotas::take(conn, slots, wanted)?;
    if count(&taken) == wanted {
        return Ok(taken);
    }
    if !quotas::exist(conn, slots)? {
        let limit = (slots.per, slots.limit);
        return Err(NotEnqueued::Uncounted(slots.quota.clone(), limit));
    }
    if taken.is_empty() {
        // They may have been created since they were looked for.
        taken = quotas::take(conn, slots, wanted)?;
    }
    while slots.per == Per::Waiting && count(&taken) < wanted {
        let missing = wanted - count(&taken);
        // Others cannot take what is freed here before this transaction ends: 1 % at most.
        let freed = missing.max(slots.limit / 100).min(MOST_FREED);
        if quotas::free(conn, Some(&slots.quota.name), freed)? == 0 {
            break;
        }
        taken.extend(quotas::take(conn, slots, missing)?);
    }
    Ok(taken)
}

/// The most jobs that are looked for at once because they do not wait any more.
const MOST_FREED: i64 = 1000;

/// Splits what was taken into the first so many and the rest.
fn split(taken: TakenBySlot, first: i64) -> (TakenBySlot, TakenBySlot) {
    let (mut kept, mut rest, mut left) = (TakenBySlot::new(), TakenBySlot::new(), first);
    for (slot, jobs) in taken {
        let here = jobs.min(left);
        left -= here;
        kept.extend((here > 0).then_some((slot, here)));
        rest.extend((jobs > here).then_some((slot, jobs - here)));
    }
    (kept, rest)
}

fn insert_admitted(conn: &mut Conn<'_>, rows: &[NewRow]) -> QueryResult<Vec<Inserted>> {
    match rows {
        [row] => Ok(vec![enqueue::insert_job(conn, row)?]),
        rows => enqueue::insert_all(conn, rows),
    }
}

/// Notes the new jobs of quotas that limit how many wait.
fn note(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    inserted: &[Inserted],
    backlog: &BacklogSlots,
) -> QueryResult<()> {
    let jobs = backlog.iter().filter_map(|(position, slot)| {
        Some(QuotaJob {
            job_id: inserted.get(*position)?.id,
            quota: rows.get(*position)?.quota.as_ref()?.name.clone(),
            slot: *slot,
        })
    });
    quotas::note(conn, &jobs.collect::<Vec<_>>())
}

/// Inserts a job that is discarded at once: without execution, unique id, key and slot.
fn discard(conn: &mut Conn<'_>, row: &NewRow, refusal: &QuotaRefusal) -> QueryResult<Inserted> {
    let row = NewRow {
        idempotency_key: None,
        unique_id: None,
        limit: None,
        expiry: None,
        follows: None,
        is_connected_later: true,
        ..row.clone()
    };
    let job = enqueue::insert_job(conn, &row)?;
    blocked::delete(conn, &[job.id])?;
    let failure = JobFailure::new(
        SHED,
        format!("{refusal}, and sheds the jobs that exceed it"),
    );
    let (attempt, result) = (AttemptOutcome::Discarded, ResultOutcome::Discarded);
    end_unstarted(conn, &[job.id], attempt, result, &failure)?;
    Ok(Inserted::new(job.id, EnqueueOutcome::Shed))
}
