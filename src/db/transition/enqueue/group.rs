//! Enqueues of several threads in one transaction of a SQLite file.
//!
//! A SQLite file has one writer. Threads of a process that enqueue at the same time, each outside of a transaction of its
//! own, hand their jobs to one of them: it inserts all that have arrived meanwhile, and commits once. A thread that comes
//! alone inserts its job as ever. The method is flat combining (Hendler, Incze, Shavit, Tzafrir, 2010).

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::turns::WriteTurns;
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::transition::enqueue::{has_more, insert_job, insert_new, is_resolved};
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The most jobs of one transaction.
const MOST: usize = 100;

/// The longest wait for another thread to take a job over: then its thread inserts it alone.
const LONGEST: Duration = Duration::from_secs(5);

/// The longest wait for the end of a transaction that has the job.
const LONGEST_OF_A_TRANSACTION: Duration = Duration::from_secs(60);

/// Inserts a job like [`insert_job`], together with those of other threads. `writers` are those of the file.
pub(crate) fn insert_together(
    conn: &mut Conn<'_>,
    writers: &Arc<WriteTurns>,
    row: &NewRow,
) -> QueryResult<Inserted> {
    if is_resolved(row) || has_more(row) || row.tenant.is_some() || conn.is_in_transaction() {
        return insert_job(conn, row);
    }
    let end = match EnqueueGroup::of(writers).arrive(row) {
        // Those that arrive meanwhile wait for its end.
        Arrival::Alone(_lead) => return insert_job(conn, row),
        Arrival::Leads(lead) => lead.insert(|rows| insert_rows(conn, rows)),
        Arrival::Ended(end) => end,
    };
    match end {
        GroupEnd::Inserted(id) => Ok(Inserted::new(id, EnqueueOutcome::New)),
        GroupEnd::ByItself => insert_job(conn, row),
        GroupEnd::Unknown(reason) => Err(Error::DatabaseError(
            DatabaseErrorKind::Unknown,
            Box::new(reason),
        )),
    }
}

/// The outcome of a transaction with the jobs of several threads.
enum GroupOutcome {
    /// The ids, in the order of the jobs.
    Committed(Vec<i64>),
    RolledBack,
    /// The commit failed.
    Unknown(String),
}

fn insert_rows(conn: &mut Conn<'_>, rows: &[NewRow]) -> GroupOutcome {
    let mut is_inserted = false;
    let done = conn.transaction(|conn| {
        let inserted = insert_new(conn, rows)?;
        is_inserted = true;
        QueryResult::Ok(inserted)
    });
    match done {
        Ok(inserted) => GroupOutcome::Committed(inserted.iter().map(|job| job.id).collect()),
        Err(error) if is_inserted => GroupOutcome::Unknown(error.to_string()),
        Err(_) => GroupOutcome::RolledBack,
    }
}

// --- Threads that meet ---

/// The threads of this process that enqueue on one file.
#[derive(Debug, Default)]
struct EnqueueGroup {
    state: Mutex<GroupState>,
}

#[derive(Debug, Default)]
struct GroupState {
    /// True while a thread inserts.
    is_led: bool,
    waiting: VecDeque<HandedJob>,
}

/// A job whose thread waits for another one to insert it, or for its turn to lead.
#[derive(Debug)]
struct HandedJob {
    row: NewRow,
    thread: Thread,
    slot: ArrivalSlot,
}

/// The part of a thread that has arrived with a job.
#[derive(Debug)]
enum Arrival {
    /// It inserts its own job, and is the only one that inserts until this is dropped.
    Alone(Lead),
    /// It inserts its own job with others.
    Leads(Lead),
    /// Another thread has inserted the job, or not.
    Ended(GroupEnd),
}

/// The end of a job that was handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GroupEnd {
    Inserted(i64),
    /// It was not inserted, and its own thread is to do it.
    ByItself,
    /// It may have been inserted.
    Unknown(String),
}

/// The right to insert, until it is dropped, with the jobs that are to be inserted.
#[derive(Debug)]
struct Lead {
    group: Arc<EnqueueGroup>,
    jobs: Vec<HandedJob>,
}

impl EnqueueGroup {
    fn of(writers: &Arc<WriteTurns>) -> Arc<Self> {
        static ALL: Mutex<Vec<(Weak<WriteTurns>, Arc<EnqueueGroup>)>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |other: &Weak<WriteTurns>| other.as_ptr() == Arc::as_ptr(writers);
        if let Some((_, group)) = all.iter().find(|(other, _)| is_same(other)) {
            return Arc::clone(group);
        }
        all.retain(|(other, _)| other.strong_count() > 0);
        let group = Arc::new(EnqueueGroup::default());
        all.push((Arc::downgrade(writers), Arc::clone(&group)));
        group
    }

    /// Waits until the job was inserted, or is to be inserted by this thread.
    fn arrive(self: Arc<Self>, row: &NewRow) -> Arrival {
        let slot = Arc::new(Mutex::new(None));
        let mut state = self.state();
        if !state.is_led {
            state.is_led = true;
            drop(state);
            let (group, jobs) = (self, Vec::new());
            return Arrival::Alone(Lead { group, jobs });
        }
        state.waiting.push_back(HandedJob {
            row: row.clone(),
            thread: std::thread::current(),
            slot: Arc::clone(&slot),
        });
        drop(state);
        let arrived = clock::instant();
        loop {
            if let Some(arrival) = taken(&slot) {
                return arrival;
            }
            let left = match self.left(&slot, arrived) {
                Ok(left) => left,
                Err(end) => return taken(&slot).unwrap_or(Arrival::Ended(end)),
            };
            std::thread::park_timeout(left);
        }
    }

    /// Returns how much longer a job may wait. One that no thread has taken over by then waits no more.
    fn left(&self, slot: &ArrivalSlot, arrived: Instant) -> Result<Duration, GroupEnd> {
        let waited = arrived.elapsed();
        let left = LONGEST.saturating_sub(waited);
        if !left.is_zero() {
            return Ok(left);
        }
        let mut state = self.state();
        let mine = |job: &HandedJob| Arc::ptr_eq(&job.slot, slot);
        if let Some(place) = state.waiting.iter().position(mine) {
            state.waiting.remove(place);
            return Err(GroupEnd::ByItself);
        }
        let left = LONGEST_OF_A_TRANSACTION.saturating_sub(waited);
        match left.is_zero() {
            true => Err(GroupEnd::Unknown(format!(
                "no answer within {} s",
                LONGEST_OF_A_TRANSACTION.as_secs()
            ))),
            false => Ok(left),
        }
    }

    /// Lets the thread insert whose job has waited longest, with the jobs behind it.
    fn pass_on(self: &Arc<Self>) {
        let mut state = self.state();
        let count = state.waiting.len().min(MOST);
        let jobs: Vec<HandedJob> = state.waiting.drain(..count).collect();
        let Some((slot, thread)) = jobs
            .first()
            .map(|job| (Arc::clone(&job.slot), job.thread.clone()))
        else {
            state.is_led = false;
            return;
        };
        let group = Arc::clone(self);
        put(&slot, Arrival::Leads(Lead { group, jobs }));
        drop(state);
        thread.unpark();
    }

    fn state(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type ArrivalSlot = Arc<Mutex<Option<Arrival>>>;

fn taken(slot: &ArrivalSlot) -> Option<Arrival> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn put(slot: &ArrivalSlot, arrival: Arrival) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrival);
}

impl Lead {
    /// Inserts the jobs, tells the other threads, and returns the end of the first job, which is this thread's own.
    fn insert(mut self, insert: impl FnOnce(&[NewRow]) -> GroupOutcome) -> GroupEnd {
        let rows: Vec<NewRow> = self.jobs.iter().map(|job| job.row.clone()).collect();
        let mut ends = match insert(&rows) {
            GroupOutcome::Committed(ids) => ids.into_iter().map(GroupEnd::Inserted).collect(),
            GroupOutcome::RolledBack => vec![GroupEnd::ByItself; rows.len()],
            GroupOutcome::Unknown(reason) => vec![GroupEnd::Unknown(reason); rows.len()],
        }
        .into_iter();
        let own = ends.next();
        let others = self.jobs.drain(..).skip(1).zip(ends);
        others.for_each(|(job, end)| job.ends(end));
        own.unwrap_or(GroupEnd::ByItself)
    }
}

impl HandedJob {
    fn ends(self, end: GroupEnd) {
        put(&self.slot, Arrival::Ended(end));
        self.thread.unpark();
    }
}

impl Drop for Lead {
    /// The jobs that are left are those of a thread that panicked.
    fn drop(&mut self) {
        for job in self.jobs.drain(..).skip(1) {
            job.ends(GroupEnd::Unknown(
                "the thread that inserted it panicked".to_owned(),
            ));
        }
        self.group.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn row() -> NewRow {
        NewRow::new("a".to_owned(), "{}".to_owned(), "q".to_owned(), 0)
    }

    /// Has `count` threads arrive behind one that inserts, which ends when all wait, and returns their ends. Of the
    /// threads that wait, the first leads.
    fn ends(count: usize, insert: fn(usize) -> GroupOutcome) -> Vec<std::thread::Result<GroupEnd>> {
        let group = Arc::new(EnqueueGroup::default());
        let Arrival::Alone(first) = Arc::clone(&group).arrive(&row()) else {
            panic!("the first thread does not wait");
        };
        let threads: Vec<_> = (0..count)
            .map(|_| {
                let group = Arc::clone(&group);
                std::thread::spawn(move || match group.arrive(&row()) {
                    Arrival::Leads(lead) => lead.insert(|rows| insert(rows.len())),
                    Arrival::Ended(end) => end,
                    Arrival::Alone(_) => panic!("another thread inserts"),
                })
            })
            .collect();
        while group.state().waiting.len() < count {
            clock::nap(Duration::from_millis(1));
        }
        drop(first);
        let ends = threads.into_iter().map(|thread| thread.join()).collect();
        assert!(!group.state().is_led);
        ends
    }

    #[test]
    fn one_thread_inserts_for_all() {
        let committed = |count| GroupOutcome::Committed((1..=count as i64).collect());
        let mut ends: Vec<GroupEnd> = ends(8, committed).into_iter().map(Result::unwrap).collect();
        ends.sort_by_key(|end| format!("{end:?}"));
        assert_eq!(ends, (1..=8).map(GroupEnd::Inserted).collect::<Vec<_>>());
    }

    #[test]
    fn after_a_rollback_each_thread_inserts_its_own() {
        let ends = ends(3, |_| GroupOutcome::RolledBack);
        assert!(
            ends.into_iter()
                .all(|end| end.unwrap() == GroupEnd::ByItself)
        );
    }

    #[test]
    fn after_a_failed_commit_each_thread_gets_the_error() {
        let ends = ends(3, |_| GroupOutcome::Unknown("disk full".to_owned()));
        let unknown = GroupEnd::Unknown("disk full".to_owned());
        assert!(ends.into_iter().all(|end| end.unwrap() == unknown));
    }

    #[test]
    fn a_thread_that_panics_leaves_no_other_behind() {
        let ends = ends(3, |_| panic!("as a test wants it"));
        let (panicked, told): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_err);
        assert_eq!((panicked.len(), told.len()), (1, 2));
        let is_unknown =
            |end: std::thread::Result<GroupEnd>| matches!(end, Ok(GroupEnd::Unknown(_)));
        assert!(told.into_iter().all(is_unknown));
    }

    #[test]
    fn more_threads_than_one_transaction_takes_are_served_in_turns() {
        let (sender, sizes) = mpsc::channel();
        static SIZES: Mutex<Option<mpsc::Sender<usize>>> = Mutex::new(None);
        *SIZES.lock().unwrap() = Some(sender);
        let ends = ends(MOST + 20, |count| {
            SIZES.lock().unwrap().as_ref().unwrap().send(count).unwrap();
            GroupOutcome::Committed(vec![1; count])
        });
        assert!(
            ends.into_iter()
                .all(|end| end.unwrap() == GroupEnd::Inserted(1))
        );
        SIZES.lock().unwrap().take();
        assert_eq!(sizes.iter().collect::<Vec<_>>(), [MOST, 20]);
    }
}
