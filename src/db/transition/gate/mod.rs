//! Lets jobs with rates through their gates: those of their rates, and that of their concurrency key.
//!
//! Jobs with the same gates are in one line, in the order of their priority and age. A promotion looks at the first jobs of
//! the lines that were requested: a job becomes ready if all its gates are open at once, and takes a token of each rate and
//! a slot of its key. Otherwise its line waits for the first gate that is closed, and holds nothing. The gates are looked at
//! in this order: the rates, as the job names them, and then the concurrency key.
//!
//! A token that was taken is promised until its job starts, see [`RateBucket`]. The row of a key is written once for all
//! jobs that a promotion lets through, and at most once in [`TICK`]: jobs that come earlier wait for the next look.

mod rate_gate;
mod steady_clock;

use crate::db::conn::connection::Conn;
use crate::db::model::rate::{GateLine, NewRate, RateBucket, RatePace};
use crate::db::table::blocked::IN_ORDER;
use crate::db::table::rates::{self, GateKind, LineJob, Moment, RateRow, TokenRow, WaitingLine};
use crate::db::table::semaphores::{self, FreeSlots};
use crate::db::table::wanted_keys::{self, GATE, NewRequest};
use crate::db::transition::gate::rate_gate::{RateGate, TICK};
use crate::db::transition::gate::steady_clock::SteadyClock;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};

/// The most tokens that are counted at once.
const MOST_TOKENS: usize = 5_000;

/// By how much a start may be older than the last look, which did not see it: it was not committed yet.
const LATE: i64 = 2_000_000;

/// The most lines that are looked at for one gate.
const LINES_OF_GATE: usize = 50;

/// The most jobs that are let through at once.
const AT_ONCE: i64 = 500;

/// The result.
#[derive(Debug, Default)]
pub(crate) struct LetThrough {
    /// The jobs that may run now, which the caller makes ready.
    pub(crate) ready: Vec<i64>,
    /// Those that end, as their key has no free slot.
    pub(crate) full: Vec<i64>,
    /// The number of lines that must be looked at again, as another transaction has locked gates of theirs.
    pub(crate) left_over: usize,
    /// True if more jobs may go on at once.
    pub(crate) has_rest: bool,
}

/// A process's view of the rates.
#[derive(Debug, Default)]
pub(crate) struct RateWatch {
    /// True if a rate may be due.
    pub(crate) is_due: bool,
    /// True if it looks at rates as often as it is asked to, in a test.
    pub(crate) has_no_tick: bool,
    steady: SteadyClock,
}

impl RateWatch {
    /// Returns the view of a test.
    pub(crate) fn of_test() -> Self {
        RateWatch {
            is_due: true,
            has_no_tick: true,
            steady: SteadyClock::default(),
        }
    }
}

/// The lines to look at.
#[derive(Debug, Default)]
pub(crate) struct WantedGates {
    pub(crate) lines: BTreeSet<String>,
    /// Concurrency keys with lines that wait for a slot.
    pub(crate) limits: Vec<String>,
    /// Rates that are due.
    pub(crate) due: Vec<String>,
}

/// Lets jobs of these lines through.
pub(crate) fn let_through(
    conn: &mut Conn<'_>,
    wanted: WantedGates,
    watch: &mut RateWatch,
) -> QueryResult<Option<LetThrough>> {
    let WantedGates {
        mut lines,
        limits,
        due,
    } = wanted;
    if lines.is_empty() && limits.is_empty() && due.is_empty() {
        return Ok(None);
    }
    for (kind, keys) in [(GateKind::Limit, &limits), (GateKind::Rate, &due)] {
        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
        lines.extend(rates::lines_at(conn, kind, &keys, LINES_OF_GATE)?);
    }
    lines.extend(due.iter().cloned());
    // A line that waits for one of its rates among others is found by that rate.
    let alone: Vec<String> = lines
        .iter()
        .filter_map(|line| GateLine::of(line).only_rate().map(str::to_owned))
        .filter(|key| !due.contains(key))
        .collect();
    let alone: Vec<&str> = alone.iter().map(|key| &**key).collect();
    lines.extend(rates::lines_at(
        conn,
        GateKind::Rate,
        &alone,
        LINES_OF_GATE,
    )?);
    let mut lines: Vec<Line> = lines.into_iter().map(Line::new).collect();
    read_ordered(conn, &mut lines)?;
    let mut gates = Gates::open(conn, &lines, watch)?;
    gates.stop_early(&mut lines);
    let jobs = gates.first_jobs(conn, &mut lines)?;
    let passed = gates.pass(&mut lines, jobs);
    note_skipped(conn, &mut lines)?;
    gates.store(conn, &lines, &passed)?;
    request_rest(conn, &lines, &passed)?;
    Ok(Some(LetThrough {
        left_over: lines.iter().filter(|line| line.is_locked).count(),
        has_rest: lines.iter().any(|line| line.has_more()),
        ready: passed.ready,
        full: passed.full,
    }))
}

/// Reads the rates of the first job of each ordered line, whose name does not have them.
fn read_ordered(conn: &mut Conn<'_>, lines: &mut [Line]) -> QueryResult<()> {
    let ordered = lines.iter().filter(|line| line.gates.rates.is_empty());
    let ordered: Vec<(&str, i64)> = ordered.map(|line| (&*line.name, 1)).collect();
    if ordered.is_empty() {
        return Ok(());
    }
    for job in rates::first_of(conn, &ordered, IN_ORDER)? {
        let line = lines.iter_mut().find(|line| line.name == job.line);
        if let Some(line) = line {
            line.gates.rates = job.rates().into_iter().map(|rate| rate.key).collect();
        }
    }
    Ok(())
}

/// Leaves the lines for later of which jobs were skipped, as other transactions have locked them.
fn note_skipped(conn: &mut Conn<'_>, lines: &mut [Line]) -> QueryResult<()> {
    let ended = lines.iter().filter(|line| line.is_empty());
    let ended: Vec<(&str, i64)> = ended.map(|line| (&*line.name, line.found)).collect();
    let longer = rates::longer_than(conn, &ended)?;
    let skipped = lines.iter_mut().filter(|line| longer.contains(&line.name));
    skipped.for_each(|line| line.is_locked = true);
    Ok(())
}

/// Requests lines of which more jobs may go on, and those whose gates another transaction has locked.
fn request_rest(conn: &mut Conn<'_>, lines: &[Line], passed: &Passed) -> QueryResult<()> {
    let request = |line: &Line| NewRequest::Gate(line.name.clone());
    let more = lines.iter().filter(|line| line.has_more());
    let has_moved = !passed.ready.is_empty() || !passed.full.is_empty();
    match has_moved {
        true => wanted_keys::request(conn, more.map(request))?,
        false => wanted_keys::request_later(conn, more.map(request))?,
    }
    let locked = lines.iter().filter(|line| line.is_locked);
    wanted_keys::request_later(conn, locked.map(request))
}

// --- Lines ---

/// A line that is looked at.
#[derive(Debug)]
struct Line {
    name: String,
    gates: GateLine,
    /// The gate that is closed, with the first job that waits for it.
    stopped: Option<Stop>,
    /// True if another transaction has locked one of its gates.
    is_locked: bool,
    /// The number of its first jobs that were asked for, and that came.
    asked: i64,
    found: i64,
}

#[derive(Debug, Clone)]
struct Stop {
    kind: GateKind,
    key: String,
    /// The priority and the id of the first job. Unknown if the line was stopped before a look at its jobs.
    first: Option<(i32, i64)>,
}

impl Line {
    fn new(name: String) -> Self {
        Line {
            gates: GateLine::of(&name),
            name,
            stopped: None,
            is_locked: false,
            asked: 0,
            found: 0,
        }
    }

    fn stop(&mut self, kind: GateKind, key: &str, first: Option<(i32, i64)>) {
        self.stopped.get_or_insert_with(|| Stop {
            kind,
            key: key.to_owned(),
            first,
        });
    }

    /// Returns whether more of its jobs may go on at once.
    fn has_more(&self) -> bool {
        !self.is_locked && self.stopped.is_none() && self.asked > 0 && self.found >= self.asked
    }

    /// Returns whether no job waits in it.
    fn is_empty(&self) -> bool {
        !self.is_locked && self.stopped.is_none() && self.found < self.asked
    }
}

/// The jobs that were let through.
#[derive(Debug, Default)]
struct Passed {
    ready: Vec<i64>,
    full: Vec<i64>,
    /// Tokens: the key, the job and the cost.
    tokens: Vec<(String, i64, i64)>,
}

// --- Gates ---

/// The gates of lines, as far as this transaction has locked them.
#[derive(Debug)]
struct Gates {
    now: i64,
    rates: BTreeMap<String, RateGate>,
    /// Keys that were never used: their pace is that of the first job.
    unknown: BTreeSet<String>,
    limits: BTreeMap<String, i64>,
    /// The gates that are locked by this transaction.
    locked: BTreeSet<String>,
    /// Tokens whose start was counted.
    counted: Vec<i64>,
}

impl Gates {
    fn open(conn: &mut Conn<'_>, lines: &[Line], watch: &mut RateWatch) -> QueryResult<Self> {
        let gates = lines.iter().map(|line| &line.gates);
        let keys = gates.clone().flat_map(|gates| gates.rates.iter().cloned());
        let keys: BTreeSet<String> = keys.collect();
        let limits: BTreeSet<String> = gates.filter_map(|gates| gates.limit.clone()).collect();
        let locked = wanted_keys::lock_gates(conn, &keys, &limits)?;
        let is_locked = |kind: &str, key: &String| locked.contains(&format!("{kind} {key}"));
        let keys = keys
            .into_iter()
            .filter(|key| is_locked(GATE, key))
            .collect();
        let limits = limits
            .into_iter()
            .filter(|key| is_locked("", key))
            .collect();
        let moment = watch.steady.read(conn)?;
        let mut gates = Gates {
            now: moment.now(),
            rates: BTreeMap::new(),
            unknown: BTreeSet::new(),
            limits: free_slots(conn, &limits)?,
            locked,
            counted: Vec::new(),
        };
        gates.read_rates(conn, keys)?;
        if watch.has_no_tick {
            gates
                .rates
                .values_mut()
                .for_each(|gate| gate.is_early = false);
        }
        gates.count(conn, moment)?;
        Ok(gates)
    }

    fn read_rates(&mut self, conn: &mut Conn<'_>, keys: BTreeSet<String>) -> QueryResult<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let (set, used): (Vec<RateRow>, Vec<RateRow>) = rates::read(conn, &keys)?
            .into_iter()
            .partition(|row| row.is_set);
        let set_for = |key: &str| {
            let group = rates::group(key);
            let of = |wanted: &str| set.iter().find(|row| row.rate_key == wanted);
            let row = of(key).or_else(|| of(group.as_deref()?));
            row.map(RateRow::pace)
        };
        let mut used: BTreeMap<String, RateRow> = used
            .into_iter()
            .map(|row| (row.rate_key.clone(), row))
            .collect();
        for key in keys {
            let (set, used) = (set_for(&key), used.remove(&key));
            let pace = set.or(used.as_ref().map(RateRow::pace));
            if pace.is_none() {
                self.unknown.insert(key.clone());
            }
            let pace = pace.unwrap_or(UNKNOWN);
            let gate = RateGate::of(used, pace, set.is_some(), self.now);
            self.rates.insert(key, gate);
        }
        Ok(())
    }

    /// Counts the starts since the last look, and the tokens that are promised.
    fn count(&mut self, conn: &mut Conn<'_>, moment: Moment) -> QueryResult<()> {
        let known = self.rates.iter();
        let known = known.filter(|(key, gate)| !self.unknown.contains(*key) && !gate.is_early);
        let keys: Vec<&str> = known.map(|(key, _)| &**key).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let tokens = rates::tokens(conn, &keys, MOST_TOKENS)?;
        let is_full = tokens.len() >= MOST_TOKENS;
        let mut starts = Vec::new();
        for token in tokens {
            match token.is_promised {
                true => self.promise(&token, moment),
                false => starts.push(token),
            }
        }
        starts.sort_by_key(|token| (token.started_at.is_none(), token.started_at));
        for token in starts {
            self.start(&token, moment);
        }
        for gate in self.rates.values_mut().filter(|gate| !gate.is_early) {
            gate.bucket.fill(self.now);
            gate.is_uncounted = is_full;
        }
        Ok(())
    }

    fn promise(&mut self, token: &TokenRow, moment: Moment) {
        if let Some(gate) = self.rates.get_mut(&token.rate_key) {
            gate.promised += token.cost;
            let since = token.created_at - moment.steps;
            gate.promised_since = Some(gate.promised_since.map_or(since, |at| at.min(since)));
        }
    }

    fn start(&mut self, token: &TokenRow, moment: Moment) {
        self.counted.push(token.id);
        let now = self.now;
        if let Some(gate) = self.rates.get_mut(&token.rate_key) {
            // One that is unknown, or was noted before a step of the clock, counts as late as it can be.
            let at = token.started_at.map(|at| at - moment.steps);
            let at = at.filter(|at| (gate.looked_at - LATE..=now).contains(at));
            gate.bucket.take(at.unwrap_or(now), token.cost);
            gate.is_changed = true;
        }
    }

    /// Stops lines with a gate that is known to be closed, before their jobs are read.
    fn stop_early(&mut self, lines: &mut [Line]) {
        for line in lines {
            let rates = line.gates.rates.iter().map(|key| (GATE, key));
            let limit = line.gates.limit.iter().map(|key| ("", key));
            let mut gates = rates.chain(limit);
            line.is_locked =
                !gates.all(|(kind, key)| self.locked.contains(&format!("{kind} {key}")));
            if line.is_locked {
                continue;
            }
            let keys = line.gates.rates.clone();
            let early = keys.iter().find(|key| {
                let gate = self.rates.get(*key);
                gate.is_some_and(|gate| gate.is_early)
            });
            if let Some(key) = early {
                line.stop(GateKind::Rate, key, None);
                if let Some(gate) = self.rates.get_mut(key)
                    && !gate.has_waiting
                {
                    gate.has_waiting = true;
                    gate.due_at = Some(gate.looked_at + TICK);
                    gate.is_changed = true;
                }
            }
        }
    }

    /// Returns the most jobs of a line that may pass.
    fn most_of(&self, line: &Line) -> i64 {
        let rates = line.gates.rates.iter().filter_map(|key| {
            let is_known = !self.unknown.contains(key);
            let gate = self.rates.get(key).filter(|_| is_known)?;
            Some(gate.room(self.now))
        });
        let limit = line.gates.limit.as_ref();
        let limit = limit.and_then(|key| self.limits.get(key).copied());
        rates.chain(limit).min().unwrap_or(AT_ONCE).max(0)
    }

    /// Reads the first jobs of the lines that go on, in the order in which they pass.
    fn first_jobs(&self, conn: &mut Conn<'_>, lines: &mut [Line]) -> QueryResult<Vec<LineJob>> {
        let going = |line: &&mut Line| !line.is_locked && line.stopped.is_none();
        let count = lines.iter_mut().filter(going).count() as i64;
        if count == 0 {
            return Ok(Vec::new());
        }
        let share = (AT_ONCE / count).max(1);
        for line in lines.iter_mut().filter(going) {
            // One more than may pass shows whether any waits behind them.
            line.asked = self.most_of(line).saturating_add(1).min(share);
        }
        let asked = lines.iter().filter(|line| line.asked > 0);
        let asked: Vec<(&str, i64)> = asked.map(|line| (&*line.name, line.asked)).collect();
        let mut jobs = rates::first_of(conn, &asked, IN_ORDER)?;
        jobs.sort_by(|one, other| {
            (one.priority, one.job_id, &one.line).cmp(&(other.priority, other.job_id, &other.line))
        });
        Ok(jobs)
    }

    /// Lets the jobs through whose gates are all open.
    fn pass(&mut self, lines: &mut [Line], jobs: Vec<LineJob>) -> Passed {
        let mut passed = Passed::default();
        let mut places: BTreeMap<String, &mut Line> = lines
            .iter_mut()
            .map(|line| (line.name.clone(), line))
            .collect();
        for job in jobs {
            let Some(line) = places.get_mut(&job.line) else {
                continue;
            };
            line.found += 1;
            if line.stopped.is_some() || line.is_locked {
                continue;
            }
            let wanted = job.rates();
            if wanted
                .iter()
                .any(|rate| !self.rates.contains_key(&rate.key))
            {
                // Another job has become the first of an ordered line.
                line.is_locked = true;
                continue;
            }
            match self.closed(line, &wanted) {
                None => self.take(line, &job, wanted, &mut passed),
                Some((GateKind::Limit, _)) if job.discards => passed.full.push(job.job_id),
                Some((kind, key)) => line.stop(kind, &key, Some((job.priority, job.job_id))),
            }
        }
        passed
    }

    /// Returns the first gate of a job that is closed.
    fn closed(&mut self, line: &Line, wanted: &[NewRate]) -> Option<(GateKind, String)> {
        let now = self.now;
        for rate in wanted {
            let Some(gate) = self.rates.get_mut(&rate.key) else {
                continue;
            };
            if self.unknown.remove(&rate.key) {
                gate.bucket = RateBucket::full(rate.pace, now);
            } else if !gate.is_set {
                gate.bucket.change(rate.pace);
            }
            if gate.room(now) < rate.cost {
                gate.wanted = Some(gate.wanted.map_or(rate.cost, |cost| cost.min(rate.cost)));
                gate.is_changed = true;
                return Some((GateKind::Rate, rate.key.clone()));
            }
        }
        let key = line.gates.limit.as_ref()?;
        let is_full = self.limits.get(key).is_some_and(|room| *room <= 0);
        is_full.then(|| (GateKind::Limit, key.clone()))
    }

    fn take(&mut self, line: &Line, job: &LineJob, wanted: Vec<NewRate>, passed: &mut Passed) {
        passed.ready.push(job.job_id);
        for rate in wanted {
            if let Some(gate) = self.rates.get_mut(&rate.key) {
                gate.promised += rate.cost;
                gate.promised_since.get_or_insert(self.now);
                gate.is_changed = true;
                passed.tokens.push((rate.key, job.job_id, rate.cost));
            }
        }
        if let Some(room) = line
            .gates
            .limit
            .as_ref()
            .and_then(|key| self.limits.get_mut(key))
        {
            *room -= 1;
        }
    }

    /// Stores what has changed.
    fn store(&mut self, conn: &mut Conn<'_>, lines: &[Line], passed: &Passed) -> QueryResult<()> {
        let tokens = passed.tokens.iter();
        let tokens: Vec<(&str, i64, i64)> = tokens
            .map(|(key, job, cost)| (&**key, *job, *cost))
            .collect();
        rates::promise(conn, &tokens)?;
        rates::delete_tokens(conn, &self.counted)?;
        let now = self.now;
        let (mut rows, mut idle) = (Vec::new(), Vec::new());
        for (key, gate) in &self.rates {
            if self.unknown.contains(key) {
                continue;
            }
            let (due_at, has_waiting) = match gate.is_early {
                true => (gate.due_at, gate.has_waiting),
                false => gate.next_look(now),
            };
            let is_due = gate.due_at.is_some_and(|due| due <= now);
            if gate.is_idle(now) && !gate.is_uncounted {
                idle.push(&**key);
                continue;
            }
            if !gate.is_changed && !is_due {
                continue;
            }
            let RateBucket {
                pace,
                level,
                counted_at,
            } = gate.bucket;
            rows.push((
                &**key,
                pace.number,
                pace.period,
                pace.burst,
                level,
                counted_at,
                due_at,
                has_waiting,
            ));
        }
        rates::store(conn, &rows)?;
        rates::forget(conn, &idle, now)?;
        let waiting = lines.iter().filter_map(|line| {
            let stop = line.stopped.as_ref()?;
            line.gates.only_rate().is_none().then_some(())?;
            let (priority, job) = stop.first.unwrap_or((i32::MIN, 0));
            Some((&*line.name, stop.kind.column(), &*stop.key, priority, job))
        });
        rates::place_lines(conn, &waiting.collect::<Vec<WaitingLine<'_>>>())?;
        let empty = lines.iter().filter(|line| line.is_empty());
        let empty = empty.filter(|line| line.gates.only_rate().is_none());
        rates::drop_lines(conn, &empty.map(|line| &*line.name).collect::<Vec<_>>())
    }
}

/// The pace of a key that no job has named yet.
const UNKNOWN: RatePace = RatePace {
    number: 1,
    period: 1,
    burst: 1,
};

/// Returns how many slots of concurrency keys are free, whether or not other jobs wait for them.
fn free_slots(conn: &mut Conn<'_>, keys: &BTreeSet<String>) -> QueryResult<BTreeMap<String, i64>> {
    let slots: Vec<FreeSlots> = semaphores::free_slots(conn, keys)?;
    // Those with blocked jobs are counted already.
    let taken = semaphores::held(conn, slots.iter().filter(|one| !one.has_blocked()))?;
    let free = slots.into_iter().map(|one| {
        let taken = taken.get(&one.key).copied().unwrap_or(0);
        (one.key, one.room - taken)
    });
    Ok(free.collect())
}
