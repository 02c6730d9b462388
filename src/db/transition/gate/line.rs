//! The lines that a promotion looks at.

use crate::db::conn::connection::Conn;
use crate::db::model::gate_line::{GateLine, ShareOf};
use crate::db::model::new_row::IN_ORDER;
use crate::db::table::rates::{self, GateKind, LineAtGate};
use crate::db::table::shares::ShareKey;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};

/// The lines to look at.
#[derive(Debug, Default)]
pub(crate) struct WantedGates {
    pub(crate) lines: BTreeSet<String>,
    /// Concurrency keys with lines that wait for a slot.
    pub(crate) limits: Vec<String>,
    /// Those of them whose other jobs come after the first of these lines.
    pub(crate) held_back: Vec<String>,
    /// Rates that are due.
    pub(crate) due: Vec<String>,
    /// Queues whose threads are shared, and of which jobs have started, or that are due.
    pub(crate) queues: BTreeSet<String>,
}

impl WantedGates {
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = self.lines.is_empty() && self.limits.is_empty() && self.due.is_empty();
        is_empty && self.queues.is_empty()
    }

    /// Takes the queues out of the requests.
    pub(super) fn sort(&mut self) {
        let queue = |line: &String| ShareOf::queue_of(line).map(str::to_owned);
        self.queues.extend(self.lines.iter().filter_map(queue));
        self.lines.retain(|line| queue(line).is_none());
    }
}

/// The most lines that are looked at for one gate.
const LINES_OF_GATE: usize = 50;

/// The reason for the look at a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineOrigin {
    Requested,
    /// It waits for a rate.
    AtRate(String),
    /// It waits for a concurrency key.
    AtLimit,
    /// It waits for a share of a queue.
    AtShare,
}

/// A line that is looked at.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) origin: LineOrigin,
    pub(super) gates: GateLine,
    /// The gate that is closed, with the first job that waits for it.
    pub(super) stopped: Option<ClosedGate>,
    /// True if another transaction has locked one of its gates, or jobs of it.
    pub(super) is_locked: bool,
    /// The number of its first jobs that were asked for, and that came.
    pub(super) asked: i64,
    pub(super) found: i64,
    /// The number of jobs that were let through.
    pub(super) passed: i64,
}

/// A gate at which a line waits.
#[derive(Debug, Clone)]
pub(super) struct ClosedGate {
    pub(super) kind: GateKind,
    pub(super) key: String,
    /// The priority and the id of the first job. Unknown if the line was stopped before a look at its jobs.
    pub(super) first: Option<(i32, i64)>,
}

impl Line {
    pub(super) fn new(name: String, origin: LineOrigin) -> Self {
        Line {
            gates: GateLine::of(&name),
            name,
            origin,
            stopped: None,
            is_locked: false,
            asked: 0,
            found: 0,
            passed: 0,
        }
    }

    pub(super) fn stop(&mut self, kind: GateKind, key: &str, first: Option<(i32, i64)>) {
        self.stopped.get_or_insert_with(|| ClosedGate {
            kind,
            key: key.to_owned(),
            first,
        });
    }

    /// Returns whether its jobs are looked at.
    pub(super) fn is_going(&self) -> bool {
        !self.is_locked && self.stopped.is_none()
    }

    /// Returns whether more of its jobs may go on at once.
    pub(super) fn has_more(&self) -> bool {
        self.is_going() && self.asked > 0 && self.found >= self.asked
    }

    /// Returns whether it waited, and no job waits in it any more.
    pub(super) fn has_emptied(&self) -> bool {
        self.is_empty() && self.found == 0 && self.gates.only_rate().is_none()
    }

    /// Returns whether it has waited for its share, and waits for another gate now.
    pub(super) fn has_gone_on(&self) -> bool {
        let stopped = self.stopped.as_ref();
        let is_past = stopped.is_some_and(|stop| stop.kind != GateKind::Share);
        is_past && self.origin == LineOrigin::AtShare
    }

    /// Returns whether no job waits in it.
    pub(super) fn is_empty(&self) -> bool {
        self.is_going() && self.found < self.asked
    }
}

/// The lines of a promotion.
#[derive(Debug, Default)]
pub(super) struct SeenLines {
    pub(super) lines: Vec<Line>,
    /// The rates of which all lines that wait for them are among these.
    pub(super) whole: BTreeSet<String>,
    /// Rates and concurrency keys of which more lines wait than these.
    pub(super) partial: BTreeSet<(GateKind, String)>,
    /// See [`WantedGates::held_back`].
    pub(super) held_back: Vec<String>,
}

/// Finds the lines: those that were requested, those of the rates that are due, and those that wait for the same gates.
pub(super) fn find(
    conn: &mut Conn<'_>,
    wanted: WantedGates,
    most: usize,
) -> QueryResult<SeenLines> {
    let mut lines: BTreeMap<String, LineOrigin> = BTreeMap::new();
    let requested = wanted.lines.into_iter();
    lines.extend(requested.map(|line| (line, LineOrigin::Requested)));
    let (alone, most) = (alone(&lines), lines.len() + most);
    // Those that find no place stay due.
    let due = wanted.due.into_iter().filter(|key| !alone.contains(key));
    let due: Vec<String> = due.take(most - lines.len()).collect();
    for key in &due {
        let origin = LineOrigin::AtRate(key.clone());
        lines.entry(key.clone()).or_insert(origin);
    }
    let rates: Vec<String> = due.into_iter().chain(alone).collect();
    let mut seen = SeenLines {
        held_back: wanted.held_back,
        ..SeenLines::default()
    };
    for (kind, keys) in [(GateKind::Limit, &wanted.limits), (GateKind::Rate, &rates)] {
        let few: Vec<_> = keys.iter().map(|key| (key, LINES_OF_GATE)).collect();
        let mut waiting = waiting_at(conn, kind, &few)?;
        for key in keys {
            let mut found = waiting.remove(key).unwrap_or_default();
            let room = most.saturating_sub(lines.len());
            let is_partial = found.len() >= LINES_OF_GATE || found.len() > room;
            found.truncate(room);
            let origin = match kind {
                GateKind::Rate => LineOrigin::AtRate(key.clone()),
                GateKind::Share | GateKind::Limit => LineOrigin::AtLimit,
            };
            for found in found {
                lines.entry(found.line).or_insert_with(|| origin.clone());
            }
            match (is_partial, kind) {
                (true, _) => drop(seen.partial.insert((kind, key.clone()))),
                (false, GateKind::Rate) => drop(seen.whole.insert(key.clone())),
                (false, GateKind::Share | GateKind::Limit) => {}
            }
        }
    }
    let lines = lines.into_iter();
    seen.lines = lines
        .map(|(name, origin)| Line::new(name, origin))
        .collect();
    read_ordered(conn, &mut seen.lines)?;
    Ok(seen)
}

/// Returns the first lines that wait for each of these gates.
pub(super) fn waiting_at(
    conn: &mut Conn<'_>,
    kind: GateKind,
    keys: &[(&String, usize)],
) -> QueryResult<BTreeMap<String, Vec<LineAtGate>>> {
    let mut waiting: BTreeMap<String, Vec<LineAtGate>> = BTreeMap::new();
    for found in rates::lines_at(conn, kind, keys)? {
        let of_gate = waiting.entry(found.gate_key.clone()).or_default();
        of_gate.push(found);
    }
    Ok(waiting)
}

/// Returns the rates that are the only gate of one of the lines.
fn alone(lines: &BTreeMap<String, LineOrigin>) -> BTreeSet<String> {
    let names = lines.keys();
    let keys = names.filter_map(|line| GateLine::of(line).only_rate().map(str::to_owned));
    keys.collect()
}

/// Reads the gates of the first job of each ordered line, whose name does not have them.
pub(super) fn read_ordered(conn: &mut Conn<'_>, lines: &mut [Line]) -> QueryResult<()> {
    let is_ordered = |line: &&Line| line.gates.rates.is_empty() && line.gates.share.is_none();
    let ordered = lines.iter().filter(is_ordered);
    let ordered: Vec<(&str, i64)> = ordered.map(|line| (&*line.name, 1)).collect();
    if ordered.is_empty() {
        return Ok(());
    }
    for job in rates::first_of(conn, &ordered, IN_ORDER)? {
        let line = lines.iter_mut().find(|line| line.name == job.line);
        if let Some(line) = line {
            line.gates.rates = job.rates().into_iter().map(|rate| rate.key).collect();
            line.gates.share = job.tenant.map(|tenant| ShareOf {
                queue: job.queue_name,
                tenant,
            });
        }
    }
    Ok(())
}

/// Returns the shares of the first jobs of those lines that do not name one, as they are of ordered keys.
pub(super) fn shares_of_ordered(
    conn: &mut Conn<'_>,
    found: &[LineAtGate],
) -> QueryResult<BTreeMap<String, ShareOf>> {
    let lines = found.iter().map(|found| found.line.clone());
    let lines = lines.map(|name| Line::new(name, LineOrigin::AtShare));
    let mut lines: Vec<Line> = lines.filter(|line| line.gates.share.is_none()).collect();
    read_ordered(conn, &mut lines)?;
    let shares = lines
        .into_iter()
        .filter_map(|line| Some((line.name, line.gates.share?)));
    Ok(shares.collect())
}

/// Returns whose use the first job of a line counts for.
pub(super) fn key_of_found(
    found: &LineAtGate,
    ordered: &BTreeMap<String, ShareOf>,
) -> Option<ShareKey> {
    let named = GateLine::of(&found.line).share;
    let share = named.or_else(|| ordered.get(&found.line).cloned())?;
    Some((share.queue, found.priority, share.tenant))
}
