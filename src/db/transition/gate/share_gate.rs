//! The shares of tenants during a promotion.
//!
//! Jobs of tenants are made ready as long as fewer of their queue are ready than start within a few milliseconds: so it is
//! decided late whose turn it is. The lines of those that wait stand in the order of their turns, and a promotion reads as many
//! of them as have room.

use crate::db::conn::connection::Conn;
use crate::db::model::gate_line::ShareOf;
use crate::db::model::share::{self, MOST_PLACES, ShareUse, Turn};
use crate::db::table::blocked;
use crate::db::table::rates::{self, GateKind, JobInLine, LineAtGate};
use crate::db::table::shares::{
    self, FairQueueRow, FloorRow, Level, ShareKey, ShareRow, StoredQueue,
};
use crate::db::table::wanted_keys::{self, GATE};
use crate::db::transition::gate::fair_queue::{LATER, ShareGate};
use crate::db::transition::gate::line::{self, Line, LineOrigin, SeenLines};
use crate::db::transition::gate::watch::{GateWatch, UsedTimes};
use crate::mutant;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};

/// The most old jobs of a queue that one promotion has wait for their share.
const MOST_OLD: i64 = 500;

/// The times that lines get their real places in one promotion, and the number of them that are read each time.
const NOTED_ANEW: usize = 3;
const MANY_LINES: usize = 500;

/// The use of a level by all.
#[derive(Debug, Clone, Copy)]
struct ShareFloor {
    pass: i64,
    /// True if lines of it wait.
    has_waiting: bool,
}

/// The queues that this transaction has locked, as far as their threads are shared.
#[derive(Debug, Default)]
pub(super) struct ShareGates {
    now: i64,
    queues: BTreeMap<String, ShareGate>,
    locked: BTreeSet<String>,
    /// Those that were wanted, and that another transaction has locked.
    pub(super) left: BTreeSet<String>,
    used: BTreeMap<ShareKey, ShareUse>,
    changed: BTreeSet<ShareKey>,
    /// Those with a row of their own.
    stored: BTreeSet<ShareKey>,
    floors: BTreeMap<Level, ShareFloor>,
    /// Jobs whose turn comes after that of others that were not read.
    late: BTreeSet<i64>,
}

impl ShareGates {
    /// Locks the queues of the lines and those that are wanted, and adds the lines whose turn it is.
    pub(super) fn open(
        conn: &mut Conn<'_>,
        seen: &mut SeenLines,
        wanted: BTreeSet<String>,
        watch: &mut GateWatch,
        now: i64,
    ) -> QueryResult<Self> {
        let of_lines = seen.lines.iter();
        let of_lines = of_lines.filter_map(|line| Some(line.gates.share.as_ref()?.queue.clone()));
        let all: BTreeSet<String> = of_lines.chain(wanted.iter().cloned()).collect();
        if all.is_empty() {
            return Ok(ShareGates::default());
        }
        let names = all.iter().map(|queue| ShareOf::gate(queue)).collect();
        let names = wanted_keys::lock_gates(conn, &names, &BTreeSet::new())?;
        let is_locked =
            |queue: &String| names.contains(&format!("{GATE} {}", ShareOf::gate(queue)));
        let mut gates = ShareGates {
            now,
            locked: all.into_iter().filter(is_locked).collect(),
            ..ShareGates::default()
        };
        gates.read(conn, watch)?;
        gates.left = wanted.difference(&gates.locked).cloned().collect();
        gates.count_times(conn, &mut watch.times)?;
        gates.leave_waiting(conn, seen)?;
        gates.add_lines(conn, seen)?;
        Ok(gates)
    }

    fn read(&mut self, conn: &mut Conn<'_>, watch: &GateWatch) -> QueryResult<()> {
        let (rows, locked) = shares::read(conn, &self.locked)?;
        self.locked.retain(|queue| !locked.contains(queue));
        let promised: Vec<i64> = rows
            .iter()
            .flat_map(FairQueueRow::promised)
            .flatten()
            .collect();
        let mut unstarted = match promised.is_empty() {
            true => BTreeMap::new(),
            false => shares::unstarted(conn, &promised)?,
        };
        if watch.has_no_tick {
            // No worker has stored a class, and the drain of a test has all.
            unstarted
                .values_mut()
                .for_each(|is_coming| *is_coming = true);
        }
        for row in rows {
            let demand = watch.demand(&row.queue_name);
            let mut gate = ShareGate::of(row, &unstarted, demand, self.now);
            gate.give_up(conn, self.now)?;
            if let Some(from) = gate.row.starting_from {
                let queue = &gate.row.queue_name;
                let (old, next) = shares::take_old(conn, queue, from, MOST_OLD)?;
                gate.row.starting_from = next;
                blocked::insert_blocked(conn, &old)?;
            }
            self.queues.insert(gate.row.queue_name.clone(), gate);
        }
        Ok(())
    }

    /// Leaves the lines that were requested and wait for their turn already: a further job of theirs changes nothing.
    fn leave_waiting(&self, conn: &mut Conn<'_>, seen: &mut SeenLines) -> QueryResult<()> {
        let requested =
            |line: &&Line| line.origin == LineOrigin::Requested && self.gate_of(line).is_some();
        let lines = seen.lines.iter().filter(requested);
        let lines: Vec<[&str; 1]> = lines.map(|line| [&*line.name]).collect();
        let waiting = shares::waiting_among(conn, &lines)?;
        seen.lines.retain(|line| !waiting.contains(&line.name));
        Ok(())
    }

    /// Adds the lines whose turn it is: as many as there is room for.
    fn add_lines(&mut self, conn: &mut Conn<'_>, seen: &mut SeenLines) -> QueryResult<()> {
        let each = MOST_PLACES / (self.queues.len() as i64).max(1);
        for gate in self.queues.values_mut() {
            gate.room = gate.room.min(each.max(1));
        }
        let found = self.find_lines(conn)?;
        let known: BTreeSet<String> = seen.lines.iter().map(|line| line.name.clone()).collect();
        let mut added: Vec<Line> = Vec::new();
        for (queue, gate) in &mut self.queues {
            let of_queue = found.iter().filter(|(found, _)| found.gate_key == *queue);
            let lines = of_queue.map(|(found, key)| {
                let used = key.as_ref().and_then(|key| self.used.get(key)).cloned();
                (found, used.unwrap_or_else(|| ShareUse::noted(found.pass)))
            });
            let named = gate.find_turns(&lines.collect::<Vec<_>>());
            let new = named.into_iter().filter(|line| !known.contains(line));
            added.extend(new.map(|name| Line::new(name, LineOrigin::AtShare)));
        }
        line::read_ordered(conn, &mut added)?;
        seen.lines.append(&mut added);
        let each = (MOST_PLACES / (seen.lines.len() as i64).max(1)).max(1);
        for (queue, gate) in &mut self.queues {
            let of_queue = |line: &&Line| {
                let share = line.gates.share.as_ref();
                share.is_some_and(|of| of.queue == *queue)
            };
            let lines = seen.lines.iter().filter(of_queue).count() as i64;
            gate.most = (gate.room / lines.max(1)).max(1).min(gate.room).min(each);
        }
        Ok(())
    }

    /// Returns the first lines that wait for each queue, by what their tenants have used. One of several lines of a tenant has
    /// noted what that had used before others of them went on: it gets its real place first.
    fn find_lines(
        &mut self,
        conn: &mut Conn<'_>,
    ) -> QueryResult<Vec<(LineAtGate, Option<ShareKey>)>> {
        let (mut least, mut rounds) = (0, 0);
        loop {
            let few = self.queues.iter().map(|(queue, gate)| {
                // One more shows whose turn comes after them.
                let most = usize::try_from(gate.room).unwrap_or(0) + 1;
                (queue, most.max(least))
            });
            let few: Vec<(&String, usize)> = few.collect();
            let waiting = line::waiting_at(conn, GateKind::Share, &few)?;
            let found: Vec<LineAtGate> = waiting.into_values().flatten().collect();
            let ordered = line::shares_of_ordered(conn, &found)?;
            let found = found.into_iter().map(|found| {
                let key = line::key_of_found(&found, &ordered);
                (found, key)
            });
            let found: Vec<(LineAtGate, Option<ShareKey>)> = found.collect();
            let keys = found.iter().filter_map(|(_, key)| key.as_ref());
            self.read_uses(conn, keys.collect())?;
            let behind = found.iter().filter_map(|(found, key)| {
                let pass = self.used.get(key.as_ref()?)?.pass;
                (pass > found.pass).then_some((&*found.line, pass))
            });
            let behind: Vec<(&str, i64)> = behind.collect();
            if behind.is_empty() || rounds >= NOTED_ANEW {
                return Ok(found);
            }
            rates::note_passes(conn, &behind)?;
            least = MANY_LINES / self.queues.len().max(1);
            rounds += 1;
        }
    }

    /// Returns whether the queue of a line is locked by this transaction, if it has one.
    pub(super) fn is_locked(&self, line: &Line) -> bool {
        let share = line.gates.share.as_ref();
        share.is_none_or(|share| self.locked.contains(&share.queue))
    }

    fn gate_of(&self, line: &Line) -> Option<&ShareGate> {
        let gate = self.queues.get(&line.gates.share.as_ref()?.queue);
        gate.filter(|gate| !gate.row.is_ending)
    }

    /// Returns the most jobs of a line that may pass.
    pub(super) fn most_of(&self, line: &Line) -> Option<i64> {
        self.gate_of(line).map(|gate| gate.most_of(&line.name))
    }

    /// Corrects what tenants have used by the times that their jobs have taken.
    fn count_times(&mut self, conn: &mut Conn<'_>, times: &mut UsedTimes) -> QueryResult<()> {
        let (mut now, later): (UsedTimes, UsedTimes) = std::mem::take(times)
            .into_iter()
            .partition(|((queue, ..), _)| self.locked.contains(queue));
        *times = later;
        now.retain(|(queue, ..), _| self.is_by_time(queue));
        self.read_uses(conn, now.keys().collect())?;
        for (key, (jobs, micros)) in now {
            let Some(gate) = self.queues.get_mut(&key.0) else {
                continue;
            };
            if let Some(used) = self.used.get_mut(&key) {
                let correction = used.correct(jobs, micros, gate.row.mean);
                gate.note_use(&key.2, correction);
                self.changed.insert(key);
            }
            gate.row.mean = share::mean(gate.row.mean, jobs, micros);
        }
        Ok(())
    }

    /// Reads what the tenants of these jobs have used.
    pub(super) fn count(
        &mut self,
        conn: &mut Conn<'_>,
        lines: &[Line],
        jobs: &[JobInLine],
    ) -> QueryResult<()> {
        let by_name: BTreeMap<&str, &Line> = lines.iter().map(|line| (&*line.name, line)).collect();
        let of_jobs = jobs.iter().filter_map(|job| {
            let line = *by_name.get(&*job.line)?;
            self.gate_of(line)?;
            key_of(line, job.level)
        });
        let keys: BTreeSet<ShareKey> = of_jobs.collect();
        self.read_uses(conn, keys.iter().collect())
    }

    /// Reads what these have used, unless that is known.
    fn read_uses(&mut self, conn: &mut Conn<'_>, mut keys: BTreeSet<&ShareKey>) -> QueryResult<()> {
        keys.retain(|key| !self.used.contains_key(*key));
        let levels = keys.iter().map(|key| (key.0.clone(), key.1));
        let levels: BTreeSet<Level> = levels
            .filter(|level| !self.floors.contains_key(level))
            .collect();
        let floors = shares::floors(conn, &levels)?.into_iter();
        self.floors.extend(floors.map(floor));
        for row in shares::used(conn, &keys)? {
            let key = (row.queue_name.clone(), row.priority, row.tenant.clone());
            if row.pass.is_some() {
                self.stored.insert(key.clone());
            }
            let used = self.use_of(row);
            self.used.insert(key, used);
        }
        Ok(())
    }

    /// Returns the queues, and whether their threads are shared by time.
    pub(super) fn by_time(&self) -> BTreeMap<String, bool> {
        let queues = self.queues.iter();
        queues
            .map(|(queue, gate)| (queue.clone(), gate.row.by_time))
            .collect()
    }

    fn is_by_time(&self, queue: &str) -> bool {
        self.queues.get(queue).is_some_and(|gate| gate.row.by_time)
    }

    fn use_of(&self, row: ShareRow) -> ShareUse {
        let floor = self.floors.get(&(row.queue_name, row.priority));
        let floor = floor.map_or(0, |floor| floor.pass);
        ShareUse {
            pass: row.pass.max(row.noted).unwrap_or(floor).max(floor),
            weight: row.weight.unwrap_or(1).into(),
            mean: row.mean.unwrap_or(0),
        }
    }

    /// Brings the jobs into the order of their turns: those of one queue by what their tenants will have used then, in the
    /// places that their age gives them among all others.
    pub(super) fn sort(&mut self, lines: &[Line], jobs: &mut [JobInLine]) {
        jobs.sort_by(|one, other| {
            (one.priority, one.job_id, &one.line).cmp(&(other.priority, other.job_id, &other.line))
        });
        if self.queues.is_empty() || mutant::is("turns_by_age") {
            return;
        }
        let by_name: BTreeMap<&str, &Line> = lines.iter().map(|line| (&*line.name, line)).collect();
        let mut uses = self.used.clone();
        let mut late = BTreeSet::new();
        let mut turns: BTreeMap<&str, Vec<(Turn, usize)>> = BTreeMap::new();
        for (place, job) in jobs.iter().enumerate() {
            let Some(line) = by_name.get(&*job.line) else {
                continue;
            };
            let Some(used) = key_of(line, job.level).and_then(|key| uses.get_mut(&key)) else {
                continue;
            };
            let Some(share) = &line.gates.share else {
                continue;
            };
            let Some(gate) = self.queues.get(&share.queue) else {
                continue;
            };
            let turn = Turn {
                priority: job.level,
                pass: used.pass,
            };
            if gate.unread.is_some_and(|unread| turn > unread) {
                late.insert(job.job_id);
            }
            used.add(used.cost(gate.row.by_time, gate.row.mean));
            let of_queue = turns.entry(&gate.row.queue_name).or_default();
            of_queue.push((turn, place));
        }
        let mut sorted: Vec<JobInLine> = jobs.to_vec();
        for mut of_queue in turns.into_values() {
            let places: Vec<usize> = of_queue.iter().map(|(_, place)| *place).collect();
            of_queue.sort_unstable();
            for (to, (_, from)) in places.into_iter().zip(of_queue) {
                sorted[to] = jobs[from].clone();
            }
        }
        jobs.clone_from_slice(&sorted);
        self.late = late;
    }

    /// Returns the queue of a line if its next job must wait for its share. If as many of its jobs have passed as may at once,
    /// all jobs whose turn comes after that one wait as well.
    pub(super) fn closed(&mut self, line: &Line, job: i64) -> Option<String> {
        let queue = &line.gates.share.as_ref()?.queue;
        let gate = self.queues.get_mut(queue)?;
        if gate.row.is_ending {
            return None;
        }
        let is_over = gate.room <= 0 || line.passed >= gate.most_of(&line.name);
        gate.is_over |= is_over || self.late.contains(&job);
        gate.is_over.then(|| queue.clone())
    }

    /// Lets a job through.
    pub(super) fn take(&mut self, line: &Line, job: &JobInLine) {
        let Some(share) = &line.gates.share else {
            return;
        };
        let Some(gate) = self.queues.get_mut(&share.queue) else {
            return;
        };
        if gate.row.is_ending {
            return; // Nothing is counted any more.
        }
        gate.room -= 1;
        gate.passed.push(job.job_id);
        let Some(key) = key_of(line, job.level) else {
            return;
        };
        if let Some(used) = self.used.get_mut(&key) {
            let cost = used.cost(gate.row.by_time, gate.row.mean);
            used.add(cost);
            gate.note_use(&key.2, cost);
            self.changed.insert(key);
        }
    }

    /// Returns what the tenant of a line has used that waits for its share with a job of this priority.
    pub(super) fn pass(&self, line: &Line, priority: i32) -> i64 {
        let used = key_of(line, priority).and_then(|key| self.used.get(&key));
        used.map_or(0, |used| used.pass)
    }

    /// Returns the queues of which more jobs may go on at once.
    pub(super) fn with_rest(&self, lines: &[Line]) -> BTreeSet<String> {
        let rest = self.queues.iter().filter(|(queue, gate)| {
            let waits = gate.has_more || lines.iter().any(|line| waits_for(line, queue));
            let has_old = gate.row.starting_from.is_some();
            gate.room > 0 && waits || has_old || gate.row.is_ending && waits
        });
        rest.map(|(queue, _)| queue.clone()).collect()
    }

    /// Stores what has changed.
    pub(super) fn store(&self, conn: &mut Conn<'_>, lines: &[Line]) -> QueryResult<()> {
        self.store_uses(conn, lines)?;
        for (queue, gate) in &self.queues {
            let waits = gate.has_more || lines.iter().any(|line| waits_for(line, queue));
            if gate.row.is_ending && !waits {
                shares::end(conn, queue)?;
                continue;
            }
            let passed = (!gate.passed.is_empty()).then_some(&gate.passed);
            let promised: Vec<_> = gate.promised.iter().chain(passed).collect();
            let row = StoredQueue {
                queue,
                places: gate.row.places,
                promised: serde_json::to_string(&promised)
                    .ok()
                    .filter(|_| !promised.is_empty()),
                recent: gate.recent(),
                mean: gate.row.mean,
                looked_at: self.now,
                moved_at: gate.moved_at,
                due_at: waits.then_some(self.now.saturating_add(LATER)),
                starting_from: gate.row.starting_from,
            };
            shares::store_queue(conn, row)?;
        }
        Ok(())
    }

    /// Stores what tenants have used of priorities of which jobs wait. In the others, all begin anew.
    fn store_uses(&self, conn: &mut Conn<'_>, lines: &[Line]) -> QueryResult<()> {
        let (mut waiting, mut others) = (BTreeSet::new(), BTreeSet::new());
        for line in lines {
            if let (true, Some(share)) = (line.is_locked, &line.gates.share) {
                others.insert(&*share.queue);
            }
            let stopped = line.stopped.as_ref();
            let stopped = stopped.filter(|stop| stop.kind == GateKind::Share);
            if let Some((stop, (priority, _))) = stopped.and_then(|stop| Some((stop, stop.first?)))
            {
                waiting.insert((&*stop.key, priority));
            }
        }
        let more = self.queues.iter().filter(|(_, gate)| gate.has_more);
        others.extend(more.map(|(queue, _)| &**queue));
        let (mut below, mut idle) = (Vec::new(), BTreeSet::new());
        for ((queue, priority), floor) in &self.floors {
            let is_waited_for = waiting.contains(&(&**queue, *priority))
                || floor.has_waiting && others.contains(&**queue);
            if !is_waited_for {
                idle.insert((queue, *priority));
            }
            let least = if is_waited_for { floor.pass } else { i64::MAX };
            below.push((&**queue, *priority, least));
        }
        let noted: BTreeSet<ShareKey> = lines.iter().filter_map(key_noted_by).collect();
        let changed = self.changed.iter().filter_map(|key| {
            let (queue, priority, tenant) = key;
            let used = self.used.get(key)?;
            let row = (&**queue, *priority, &**tenant, used.pass, used.mean);
            let is_noted = noted.contains(key) && used.mean == 0 && !self.stored.contains(key);
            (!is_noted && !idle.contains(&(queue, *priority))).then_some(row)
        });
        shares::store(conn, &changed.collect::<Vec<_>>())?;
        shares::forget(conn, &below)
    }
}

/// Returns whose use of what a job of a line counts for.
fn key_of(line: &Line, priority: i32) -> Option<ShareKey> {
    let share = line.gates.share.as_ref()?;
    Some((share.queue.clone(), priority, share.tenant.clone()))
}

/// Returns whose use a line notes that waits, if its tenant has hardly any other line of the queue: it has no other gate.
fn key_noted_by(line: &Line) -> Option<ShareKey> {
    let is_only = line.gates.rates.is_empty() && line.gates.limit.is_none();
    let stopped = line
        .stopped
        .as_ref()
        .filter(|stop| stop.kind == GateKind::Share && is_only);
    let (priority, _) = stopped?.first?;
    key_of(line, priority)
}

fn waits_for(line: &Line, queue: &str) -> bool {
    let stopped = line.stopped.as_ref();
    stopped.is_some_and(|stop| stop.kind == GateKind::Share && stop.key == queue)
}

fn floor(row: FloorRow) -> (Level, ShareFloor) {
    let floor = ShareFloor {
        pass: row.waiting.or(row.most).unwrap_or(0),
        has_waiting: row.waiting.is_some(),
    };
    ((row.queue_name, row.priority), floor)
}
