//! Adds what processes have contributed to the history to its buckets, in the transaction that deletes
//! the contributions.

use crate::db::conn::connection::Conn;
use crate::db::model::history::cell::{self, Cell, Cells, GaugeSample, Resolution, Unreadable};
use crate::db::model::history::contribution::{Contribution, MOST_SERIES, OTHER, cut};
use crate::db::table::history::deltas::{self, UnfoldedDelta};
use crate::db::table::history::series::{self, BucketRow, FoldTimes, SeriesIds};
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most contributions that one transaction folds.
pub(crate) const CHUNK: usize = 2_000;

/// The condition for a fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldWhen {
    /// If the last one was not in this minute: for supervisors.
    OnceAMinute,
    /// If the last one is so long ago that no supervisor folds: for workers.
    Overdue(Duration),
    /// Anyhow: after one that has left some contributions.
    Now,
}

impl FoldWhen {
    fn is_due(self, times: FoldTimes) -> bool {
        match self {
            FoldWhen::Now => true,
            // The clock may have been set back since.
            FoldWhen::OnceAMinute => minute(times.folded) != minute(times.now),
            FoldWhen::Overdue(age) => {
                let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
                times.now - times.folded >= age || times.folded > times.now + age
            }
        }
    }
}

fn minute(seconds: i64) -> i64 {
    seconds.div_euclid(60)
}

/// The result of a fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folded {
    /// It is not due, or another process is folding.
    NotDue,
    /// A newer program has written rows that this one cannot read: its processes fold.
    LeftToNewer,
    /// So many contributions were folded.
    Done { count: usize, is_full: bool },
}

/// Returns whether a fold is due, without locking anything.
pub(crate) fn is_due(conn: &mut Conn<'_>, when: FoldWhen) -> QueryResult<bool> {
    let times = series::fold_times(conn)?;
    Ok(times.is_none_or(|times| when.is_due(times)))
}

/// Folds up to [`CHUNK`] contributions, and a sample of the queues, workers and gates if there is one.
///
/// The row of the series of everything is the lock: a fold holds it to the end of its transaction, and
/// others do not wait. A process that dies at any moment has folded nothing.
pub(crate) fn fold(
    conn: &mut Conn<'_>,
    when: FoldWhen,
    sample: Option<&GaugeSample>,
) -> QueryResult<Folded> {
    let folded = conn.transaction(|conn| {
        let locked = match series::lock(conn)? {
            None => {
                series::insert_first(conn)?;
                series::lock(conn)?
            }
            locked => locked,
        };
        let Some(times) = locked.filter(|times| when.is_due(*times)) else {
            return Ok(Folded::NotDue);
        };
        let mut plan = FoldPlan::new(series::ids(conn)?);
        let folded = contribute(conn, &mut plan)?;
        if let Some(sample) = sample {
            plan.sample(conn, sample, times.now)?;
        }
        if plan.write(conn)? == WrittenPlan::LeftToNewer {
            return Err(RollbackTransaction);
        }
        deltas::note_folded(conn, &folded)?;
        Ok(Folded::Done {
            is_full: folded.len() >= CHUNK,
            count: folded.len(),
        })
    });
    match folded {
        Err(RollbackTransaction) => Ok(Folded::LeftToNewer),
        folded => folded,
    }
}

/// Adds up to [`CHUNK`] contributions to a plan, and returns them. Those that cannot be read are
/// passed over; `doctor` reports them.
fn contribute(conn: &mut Conn<'_>, plan: &mut FoldPlan) -> QueryResult<Vec<UnfoldedDelta>> {
    let (mut folded, mut after) = (Vec::new(), 0);
    loop {
        let found = deltas::unfolded(conn, after, CHUNK - folded.len())?;
        let Some(last) = found.last() else {
            return Ok(folded);
        };
        after = last.id;
        for delta in found {
            if let Ok(contribution) = Contribution::unpack(&delta.data) {
                plan.add(conn, &contribution, delta.seconds)?;
                folded.push(delta);
            }
        }
        if folded.len() >= CHUNK {
            return Ok(folded);
        }
    }
}

// --- The plan of a fold: the additions to each series ---

/// The most rows that one statement reads or writes.
const ROWS: usize = 500;

/// The time for which the series of a gate stays without waiting jobs, if another gate needs its place.
const GATE_KEPT: Duration = Duration::from_secs(3_600);

/// The most series of gates that one fold deletes.
const GATES_AT_ONCE: i64 = 5;

/// The values to add, by series and minute.
#[derive(Debug)]
pub(super) struct FoldPlan {
    ids: SeriesIds,
    added: BTreeMap<i64, BTreeMap<i64, Cell>>,
}

/// The result of writing a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrittenPlan {
    Written,
    /// A newer program has written one of the rows: the transaction must change nothing.
    LeftToNewer,
}

impl FoldPlan {
    pub(super) fn new(ids: SeriesIds) -> Self {
        FoldPlan {
            ids,
            added: BTreeMap::new(),
        }
    }

    /// Adds a contribution to the series of its queues and classes, of the queues, and of everything.
    pub(super) fn add(
        &mut self,
        conn: &mut Conn<'_>,
        contribution: &Contribution,
        seconds: i64,
    ) -> QueryResult<()> {
        let mut all = Cell {
            died: contribution.died,
            ..Cell::default()
        };
        for (queue, class, tally) in contribution.series.iter() {
            let (queue, class) = self.ids.pairs.counted_names(queue, class);
            let cell = Cell::of(tally.clone());
            let pair = match self.ids.pairs.get(queue, class) {
                Some(id) => *id,
                None => self.create_pair(conn, queue, class)?,
            };
            let whole = self.ids.queue(queue).filter(|whole| *whole != pair);
            for id in std::iter::once(pair).chain(whole) {
                self.cell(id, seconds).merge(&cell);
            }
            all.merge(&cell);
        }
        if let Some(id) = self.ids.all {
            self.cell(id, seconds).merge(&all);
        }
        Ok(())
    }

    /// Adds a sample of the queues, the workers and the gates.
    pub(super) fn sample(
        &mut self,
        conn: &mut Conn<'_>,
        sample: &GaugeSample,
        seconds: i64,
    ) -> QueryResult<()> {
        for (queue, gauge) in &sample.queues {
            let id = match self.ids.queue(queue) {
                Some(id) => id,
                None if queue.is_empty() || self.ids.count_wholes() >= MOST_SERIES => continue,
                None => self.create(conn, queue, "")?,
            };
            let cell = Cell {
                queue: Some(*gauge),
                ..Cell::default()
            };
            self.cell(id, seconds).merge(&cell);
        }
        if let Some(id) = self.ids.all {
            let cell = Cell {
                fleet: Some(sample.fleet),
                ..Cell::default()
            };
            self.cell(id, seconds).merge(&cell);
        }
        self.sample_gates(conn, &sample.gates, seconds)
    }

    /// Adds a sample of the gates. Those with the longest waits get the free series, and the rest is `other`.
    fn sample_gates(
        &mut self,
        conn: &mut Conn<'_>,
        gates: &BTreeMap<String, Duration>,
        seconds: i64,
    ) -> QueryResult<()> {
        let is_new = |gate: &String| !self.ids.gates.contains_key(cut(gate));
        if !self.ids.has_room_for_gate() && gates.keys().any(is_new) {
            let idle = series::idle_gates(conn, GATE_KEPT, GATES_AT_ONCE)?;
            series::delete(conn, &idle)?;
            self.ids.gates.retain(|_, id| !idle.contains(id));
        }
        let mut gates: Vec<(&String, Duration)> =
            gates.iter().map(|(gate, waited)| (gate, *waited)).collect();
        gates.sort_by_key(|(_, waited)| Reverse(*waited));
        let mut longest: BTreeMap<i64, Duration> = BTreeMap::new();
        for (gate, waited) in gates {
            let has_room = self.ids.has_room_for_gate();
            let own = Some(cut(gate)).filter(|gate| has_room || self.ids.gates.contains_key(*gate));
            let name = own.unwrap_or(OTHER);
            let id = match self.ids.gates.get(name) {
                Some(id) => *id,
                None => self.create(conn, "", name)?,
            };
            longest.entry(id).or_insert(waited);
        }
        for (id, waited) in longest {
            self.cell(id, seconds).tally.wait.record(waited);
        }
        Ok(())
    }

    /// Adds the series of a queue and a class, and before that the one of the whole queue, if this is its
    /// second class.
    fn create_pair(&mut self, conn: &mut Conn<'_>, queue: &str, class: &str) -> QueryResult<i64> {
        if let Some(only) = self.ids.lacks_whole(queue) {
            let whole = series::insert_whole(conn, queue, only)?;
            self.ids.insert(queue, "", whole);
            if let Some(added) = self.added.get(&only).cloned() {
                self.added.insert(whole, added);
            }
        }
        self.create(conn, queue, class)
    }

    fn create(&mut self, conn: &mut Conn<'_>, queue: &str, class: &str) -> QueryResult<i64> {
        let id = series::insert_series(conn, queue, class)?;
        self.ids.insert(queue, class, id);
        Ok(id)
    }

    fn cell(&mut self, id: i64, seconds: i64) -> &mut Cell {
        let minutes = self.added.entry(id).or_default();
        minutes.entry(seconds.div_euclid(60) * 60).or_default()
    }

    /// Returns the cells to add to each row, at all resolutions and to the totals.
    fn rows(&self) -> Vec<(BucketRow, Cells)> {
        let mut rows: BTreeMap<BucketRow, Cells> = BTreeMap::new();
        for (series_id, minutes) in &self.added {
            for (seconds, cell) in minutes {
                for resolution in Resolution::ALL.into_iter().chain([Resolution::AllTime]) {
                    let (starts_at, bucket) = resolution.row_and_bucket(*seconds);
                    let row = BucketRow {
                        series_id: *series_id,
                        resolution,
                        starts_at,
                    };
                    let cells = rows.entry(row).or_default();
                    let sum = cells.entry(bucket).or_default();
                    sum.merge(cell);
                    if resolution == Resolution::AllTime {
                        // Samples have no sum.
                        (sum.queue, sum.fleet) = (None, None);
                    }
                }
            }
        }
        rows.into_iter().collect()
    }

    /// Writes the rows. One that cannot be read stays as it is.
    pub(super) fn write(self, conn: &mut Conn<'_>) -> QueryResult<WrittenPlan> {
        for rows in self.rows().chunks(ROWS) {
            let keys: Vec<BucketRow> = rows.iter().map(|(key, _)| *key).collect();
            let mut found: BTreeMap<(i64, i64, i64), Vec<u8>> = BTreeMap::new();
            for row in series::read(conn, &keys)? {
                found.insert((row.series_id, row.resolution, row.starts_at), row.data);
            }
            let mut written = Vec::with_capacity(rows.len());
            for (key, added) in rows {
                let found = found.get(&(key.series_id, key.resolution.seconds(), key.starts_at));
                match found.map_or_else(|| Ok(Cells::new()), |data| cell::unpack(data)) {
                    Ok(mut cells) => {
                        for (bucket, cell) in added {
                            cells.entry(*bucket).or_default().merge(cell);
                        }
                        written.push((*key, cell::pack(&cells)));
                    }
                    Err(Unreadable::Newer) => return Ok(WrittenPlan::LeftToNewer),
                    Err(Unreadable::Damaged) => {}
                }
            }
            series::write(conn, written)?;
        }
        let folded: BTreeSet<i64> = self.added.into_keys().chain(self.ids.all).collect();
        series::note_folded(conn, &Vec::from_iter(folded))?;
        Ok(WrittenPlan::Written)
    }
}
