//! The gates of lines, as far as a promotion has locked them.

use crate::db::conn::connection::Conn;
use crate::db::model::new_row::IN_ORDER;
use crate::db::model::rate::{NewRate, RateBucket, RatePace};
use crate::db::table::rates::{
    self, GateKind, JobInLine, LineTurn, RateRow, SetPaces, WaitingLine,
};
use crate::db::table::semaphores::{self, FreeSlots};
use crate::db::table::wanted_keys::{self, GATE};
use crate::db::transition::gate::line::{Line, LineOrigin, SeenLines};
use crate::db::transition::gate::rate_gate::{LineView, RateGate};
use crate::db::transition::gate::share_gate::ShareGates;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};

/// The most promised jobs that are looked at in one promotion.
const MOST_PROMISED: usize = 5_000;

/// The most jobs that are let through at once.
const AT_ONCE: i64 = 500;

/// The pace of a key that no job has named yet.
const UNKNOWN: RatePace = RatePace {
    number: 1,
    period: 1,
    burst: 1,
};

/// The jobs that were let through.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub(super) ready: Vec<i64>,
    /// Those that end, as their key has no free slot, and their lines.
    pub(super) full: Vec<(i64, String)>,
}

/// A concurrency key during a promotion.
#[derive(Debug)]
struct LimitGate {
    /// The number of its free slots.
    room: i64,
    /// The first job without a rate that waits, if the key is ordered.
    first: Option<i64>,
}

/// The gates that this transaction has locked.
#[derive(Debug)]
pub(super) struct Gates {
    now: i64,
    pub(super) shares: ShareGates,
    rates: BTreeMap<String, RateGate>,
    /// Keys that were never used: their pace is that of the first job.
    unknown: BTreeSet<String>,
    /// The paces that were set at run time.
    set: SetPaces,
    limits: BTreeMap<String, LimitGate>,
    /// The names of all of them, as they are locked.
    locked: BTreeSet<String>,
}

impl Gates {
    pub(super) fn open(
        conn: &mut Conn<'_>,
        seen: &SeenLines,
        shares: ShareGates,
        now: i64,
    ) -> QueryResult<Self> {
        let gates = seen.lines.iter().map(|line| &line.gates);
        let keys = gates.clone().flat_map(|gates| gates.rates.iter().cloned());
        let keys: BTreeSet<String> = keys.collect();
        let limits: BTreeSet<String> = gates.filter_map(|gates| gates.limit.clone()).collect();
        let locked = wanted_keys::lock_gates(conn, &keys, &limits)?;
        let is_locked = |kind: &str, key: &String| locked.contains(&format!("{kind} {key}"));
        let keys: BTreeSet<String> = keys
            .into_iter()
            .filter(|key| is_locked(GATE, key))
            .collect();
        let limits = limits
            .into_iter()
            .filter(|key| is_locked("", key))
            .collect();
        let mut gates = Gates {
            now,
            shares,
            rates: BTreeMap::new(),
            unknown: BTreeSet::new(),
            set: rates::set_paces(conn, &keys)?,
            limits: free_slots(conn, &limits)?,
            locked,
        };
        gates.read_rates(conn, keys, seen)?;
        Ok(gates)
    }

    fn read_rates(
        &mut self,
        conn: &mut Conn<'_>,
        keys: BTreeSet<String>,
        seen: &SeenLines,
    ) -> QueryResult<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let (used, locked) = rates::read(conn, &keys)?;
        let used = used.into_iter().map(|row| (row.rate_key.clone(), row));
        let mut used: BTreeMap<String, RateRow> = used.collect();
        for key in &locked {
            self.locked.remove(&format!("{GATE} {key}"));
        }
        for key in keys.into_iter().filter(|key| !locked.contains(key)) {
            let used = used.remove(&key);
            if used.is_none() {
                self.unknown.insert(key.clone());
            }
            let lines = match seen.partial.contains(&(GateKind::Rate, key.clone())) {
                true => LineView::Partial,
                false if seen.whole.contains(&key) => LineView::Whole,
                false => LineView::Few,
            };
            let gate = RateGate::of(used, UNKNOWN, lines, self.now);
            self.rates.insert(key, gate);
        }
        Ok(())
    }

    /// Looks at all of them, however short a time ago that was done before.
    pub(super) fn look_again(&mut self) {
        self.rates.values_mut().for_each(RateGate::look_at_once);
    }

    pub(super) fn has_rate(&self, key: &str) -> bool {
        self.rates.contains_key(key)
    }

    /// Returns the concurrency keys that have a free slot, and more lines that wait for it than were looked at, or jobs that
    /// were held back for these lines.
    pub(super) fn open_limits(&self, seen: &SeenLines) -> Vec<String> {
        let partial = seen.partial.iter();
        let partial = partial.filter(|(kind, _)| *kind == GateKind::Limit);
        let keys = partial.map(|(_, key)| key).chain(&seen.held_back);
        let open = keys.filter(|key| self.limits.get(*key).is_none_or(|gate| gate.room > 0));
        open.cloned().collect()
    }

    /// Stops lines with a gate that is known to be closed, before their jobs are read.
    pub(super) fn stop_early(&mut self, lines: &mut [Line]) {
        for line in lines {
            let rates = line.gates.rates.iter().map(|key| (GATE, key));
            let limit = line.gates.limit.iter().map(|key| ("", key));
            let mut gates = rates.chain(limit);
            line.is_locked = !self.shares.is_locked(line)
                || !gates.all(|(kind, key)| self.locked.contains(&format!("{kind} {key}")));
            if line.is_locked {
                continue;
            }
            let early = line.gates.rates.iter().find(|key| {
                let gate = self.rates.get(*key);
                gate.is_some_and(|gate| gate.is_early)
            });
            if let Some(key) = early.cloned() {
                line.stop(GateKind::Rate, &key, None);
                if let Some(gate) = self.rates.get_mut(&key) {
                    gate.wait_for_look(self.now);
                }
            }
        }
    }

    /// Counts the starts since the last look.
    pub(super) fn count(&mut self, conn: &mut Conn<'_>) -> QueryResult<()> {
        let unknown = &self.unknown;
        let now = self.now;
        let used = self.rates.iter_mut();
        let used = used.filter(|(key, gate)| !unknown.contains(*key) && !gate.is_early);
        let used =
            used.filter_map(|(key, gate)| (!gate.has_plenty(now, AT_ONCE)).then_some((key, gate)));
        let mut used: Vec<&mut RateGate> = used.map(|(_, gate)| gate).collect();
        let mut promised: Vec<i64> = Vec::new();
        for gate in &mut used {
            gate.is_uncounted = promised.len() >= MOST_PROMISED;
            if !gate.is_uncounted {
                promised.extend(gate.promised_jobs());
            }
        }
        if promised.is_empty() {
            used.iter_mut().for_each(|gate| gate.bucket.fill(self.now));
            return Ok(());
        }
        let unstarted = rates::unstarted(conn, &promised)?;
        // After the look at them: no start is counted before it was.
        self.now = self.now.max(rates::moment(conn)?.now());
        for gate in used.into_iter().filter(|gate| !gate.is_uncounted) {
            gate.count(&unstarted, self.now);
        }
        Ok(())
    }

    /// Returns the most jobs of a line that may pass.
    fn most_of(&self, line: &Line) -> i64 {
        let rates = line.gates.rates.iter().filter_map(|key| {
            let is_known = !self.unknown.contains(key);
            let gate = self.rates.get(key).filter(|_| is_known)?;
            Some(gate.room(self.now))
        });
        let limit = line.gates.limit.as_ref();
        let limit = limit.and_then(|key| self.limits.get(key));
        let limit = limit.map(|gate| gate.room);
        let most = rates.chain(limit).chain(self.shares.most_of(line)).min();
        most.unwrap_or(AT_ONCE).max(0)
    }

    /// Reads the first jobs of the lines that go on, in the order in which they pass.
    pub(super) fn first_jobs(
        &mut self,
        conn: &mut Conn<'_>,
        lines: &mut [Line],
    ) -> QueryResult<Vec<JobInLine>> {
        let count = lines.iter().filter(|line| line.is_going()).count() as i64;
        let share = (AT_ONCE / count.max(1)).max(1);
        for line in lines.iter_mut().filter(|line| line.is_going()) {
            // One more than may pass shows whether any waits behind them, and when it is the turn of that one.
            let most = self.most_of(line).saturating_add(1);
            let is_fair = self.shares.most_of(line).is_some();
            line.asked = if is_fair { most } else { most.min(share) };
        }
        let asked = lines.iter().filter(|line| line.asked > 0);
        let asked: Vec<(&str, i64)> = asked.map(|line| (&*line.name, line.asked)).collect();
        let mut jobs = match asked.is_empty() {
            true => Vec::new(),
            false => rates::first_of(conn, &asked, IN_ORDER)?,
        };
        self.shares.count(conn, lines, &jobs)?;
        self.shares.sort(lines, &mut jobs);
        Ok(jobs)
    }

    /// Lets the jobs through whose gates are all open.
    pub(super) fn pass(&mut self, lines: &mut [Line], jobs: Vec<JobInLine>) -> Passed {
        let mut passed = Passed::default();
        let lines = lines.iter_mut().map(|line| (line.name.clone(), line));
        let mut lines: BTreeMap<String, &mut Line> = lines.collect();
        for job in jobs {
            let Some(line) = lines.get_mut(&job.line) else {
                continue;
            };
            line.found += 1;
            if !line.is_going() {
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
            match self.closed(line, &job, &wanted) {
                None => {
                    self.take(line, &job, wanted, &mut passed);
                    line.passed += 1;
                }
                Some((GateKind::Limit, _)) if job.discards => {
                    passed.full.push((job.job_id, job.line))
                }
                Some((GateKind::Share, key)) => {
                    line.stop(GateKind::Share, &key, Some((job.level, job.job_id)));
                }
                Some((kind, key)) => line.stop(kind, &key, Some((job.priority, job.job_id))),
            }
        }
        passed
    }

    /// Returns the first gate of a job that is closed.
    fn closed(
        &mut self,
        line: &Line,
        job: &JobInLine,
        wanted: &[NewRate],
    ) -> Option<(GateKind, String)> {
        if let Some(queue) = self.shares.closed(line, job.job_id) {
            return Some((GateKind::Share, queue));
        }
        for rate in wanted {
            let Some(gate) = self.rates.get_mut(&rate.key) else {
                continue;
            };
            let pace = self.set.pace(rate);
            if self.unknown.remove(&rate.key) {
                gate.bucket = RateBucket::full(pace, self.now);
            } else {
                gate.bucket.change(pace);
            }
            if gate.is_closed_for(rate.cost, self.now) {
                return Some((GateKind::Rate, rate.key.clone()));
            }
        }
        let key = line.gates.limit.as_ref()?;
        let is_full = self.limits.get(key).is_some_and(|gate| {
            let is_ordered = job.priority == IN_ORDER;
            gate.room <= 0 || is_ordered && gate.first.is_some_and(|first| first < job.job_id)
        });
        is_full.then(|| (GateKind::Limit, key.clone()))
    }

    fn take(&mut self, line: &Line, job: &JobInLine, wanted: Vec<NewRate>, passed: &mut Passed) {
        passed.ready.push(job.job_id);
        self.shares.take(line, job);
        for rate in wanted {
            if let Some(gate) = self.rates.get_mut(&rate.key) {
                gate.promise(job.job_id, rate.cost, self.now);
            }
        }
        let limit = line.gates.limit.as_ref();
        if let Some(gate) = limit.and_then(|key| self.limits.get_mut(key)) {
            gate.room -= 1;
        }
    }

    /// Stores what has changed.
    pub(super) fn store(&mut self, conn: &mut Conn<'_>, lines: &[Line]) -> QueryResult<()> {
        for key in lines
            .iter()
            .filter(|line| line.has_more())
            .flat_map(|line| &line.gates.rates)
        {
            if let Some(gate) = self.rates.get_mut(key) {
                gate.note_rest();
            }
        }
        let known = self.rates.iter();
        let known = known.filter(|(key, _)| !self.unknown.contains(*key));
        let (idle, used): (Vec<_>, Vec<_>) = known.partition(|(_, gate)| gate.is_idle(self.now));
        let rows = used
            .into_iter()
            .filter_map(|(key, gate)| gate.row(key, self.now));
        rates::store(conn, &rows.collect::<Vec<_>>())?;
        let idle: Vec<&str> = idle.into_iter().map(|(key, _)| &**key).collect();
        rates::forget(conn, &idle, self.now)?;
        self.shares.store(conn, lines)?;
        self.place(conn, lines)
    }

    /// Notes at which gates lines with several gates wait.
    fn place(&self, conn: &mut Conn<'_>, lines: &[Line]) -> QueryResult<()> {
        let lines = lines.iter().filter(|line| line.gates.only_rate().is_none());
        let waiting = lines.clone().filter_map(|line| self.place_of(line));
        rates::place_lines(conn, &waiting.collect::<Vec<_>>())?;
        let empty = lines.filter(|line| line.is_empty());
        rates::drop_lines(conn, &empty.map(|line| &*line.name).collect::<Vec<_>>())
    }

    /// Returns the place of a line that waits, if it is another one than before.
    fn place_of<'l>(&self, line: &'l Line) -> Option<WaitingLine<'l>> {
        let stop = line.stopped.as_ref()?;
        let (priority, job) = stop.first.unzip();
        let is_there = match &line.origin {
            LineOrigin::AtRate(key) => job.is_none() && *key == stop.key,
            LineOrigin::Requested | LineOrigin::AtLimit | LineOrigin::AtShare => false,
        };
        let place = WaitingLine {
            line: &line.name,
            kind: stop.kind.column(),
            key: &stop.key,
            priority,
            job,
            pass: match (stop.kind, priority) {
                (GateKind::Share, Some(priority)) => self.shares.pass(line, priority),
                _ => 0,
            },
            turn: match (&line.gates.share, line.passed) {
                (None, _) => LineTurn::Age,
                (Some(_), 0) => LineTurn::Kept,
                (Some(_), _) => LineTurn::Served,
            },
        };
        (!is_there).then_some(place)
    }
}

/// Returns how many slots of concurrency keys are free, whether or not other jobs wait for them.
fn free_slots(
    conn: &mut Conn<'_>,
    keys: &BTreeSet<String>,
) -> QueryResult<BTreeMap<String, LimitGate>> {
    let slots: Vec<FreeSlots> = semaphores::free_slots(conn, keys)?;
    // Those with blocked jobs are counted already.
    let taken = semaphores::held(conn, slots.iter().filter(|one| !one.has_blocked()))?;
    let free = slots.into_iter().map(|one| {
        let taken = taken.get(&one.key).copied().unwrap_or(0);
        let gate = LimitGate {
            room: one.room - taken,
            first: one.first_in_order,
        };
        (one.key, gate)
    });
    Ok(free.collect())
}
