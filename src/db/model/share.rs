//! Shares of a queue's threads: how many jobs of it are made ready, and what a tenant has used.
//!
//! Of those that wait, the tenant that has used least comes next; a job counts from its start, so that a tenant that was away
//! is not ahead for that (start-time fair queueing: P. Goyal, H. Vin, H. Cheng, 1996). A job adds its cost, divided by the
//! weight of its tenant.

use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// The cost of a job where jobs are counted.
pub(crate) const ONE_JOB: i64 = 1_000_000;

/// The cost of a job where time is counted and none has been measured, in microseconds.
const UNKNOWN_TIME: i64 = 1_000;

/// The most jobs of a queue that are ready by a share.
pub(crate) const MOST_PLACES: i64 = 500;

/// The time for which as many jobs are ready as start in it, in microseconds.
const AHEAD: f64 = 4_000.0;

/// The starts a second from which jobs are so short that a longer time is better: each promotion costs more than some of them.
const MANY: f64 = 4_000.0;

/// The time whose starts determine a rate of starts, in microseconds: threads may begin together, again and again.
const MEASURED: i64 = 50_000;

/// A clock may have no smaller parts, in microseconds.
const SHORTEST: i64 = 1_000;

/// Returns how many jobs of a queue may be ready by a share, beside those that a process can start at once: as many as start
/// within a few milliseconds, so that another tenant's job soon has its turn, and the threads find one whenever they look.
pub(crate) fn places(before: i64, started: i64, elapsed: i64) -> i64 {
    // Another program may have written the column.
    let before = before.clamp(1, MOST_PLACES);
    if started <= 0 {
        return before;
    }
    let elapsed = elapsed.clamp(SHORTEST, i64::from(u32::MAX));
    let rate = started as f64 * 1e6 / elapsed as f64;
    let wanted = rate * AHEAD / 1e6 * (1.0 + rate / MANY);
    let wanted = wanted.min(MOST_PLACES as f64) as i64 + 1;
    let step = (wanted - before) * elapsed / (elapsed + MEASURED);
    let next = match wanted.cmp(&before) {
        Ordering::Less => before + step.min(-1),
        Ordering::Equal => before,
        Ordering::Greater => before + step.max(1),
    };
    next.clamp(1, MOST_PLACES)
}

/// The use of a queue by a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShareUse {
    /// The sum of what its jobs cost, divided by its weight.
    pub(crate) pass: i64,
    pub(crate) weight: i64,
    /// The mean time of its jobs, in microseconds. 0 if unknown.
    pub(crate) mean: i64,
}

impl ShareUse {
    /// Returns the use of an unknown tenant, as its line has noted it.
    pub(crate) fn noted(pass: i64) -> Self {
        ShareUse {
            pass,
            weight: 1,
            mean: 0,
        }
    }

    /// Returns the cost of its next job: one, or its time as far as that is known.
    pub(crate) fn cost(&self, by_time: bool, mean_of_queue: i64) -> i64 {
        let known = [self.mean, mean_of_queue];
        match by_time {
            true => known
                .into_iter()
                .find(|mean| *mean > 0)
                .unwrap_or(UNKNOWN_TIME),
            false => ONE_JOB,
        }
    }

    /// Adds a cost. One below 0 gives back what an estimate had added.
    pub(crate) fn add(&mut self, cost: i64) {
        self.pass = self.pass.saturating_add(self.share_of(cost));
    }

    /// Returns what a cost adds. Each job adds something, or its tenant's turn would never end.
    fn share_of(&self, cost: i64) -> i64 {
        let share = cost / self.weight.max(1);
        if cost > 0 { share.max(1) } else { share }
    }

    /// Corrects what was added for jobs by an estimate, now that they have run for `micros` together. Returns the
    /// correction.
    pub(crate) fn correct(&mut self, jobs: i64, micros: i64, mean_of_queue: i64) -> i64 {
        let estimate = self.cost(true, mean_of_queue).saturating_mul(jobs);
        let correction = micros.saturating_sub(estimate);
        self.add(correction);
        self.mean = mean(self.mean, jobs, micros);
        correction
    }
}

/// Returns the mean time of a job after so many more have run.
pub(crate) fn mean(before: i64, jobs: i64, micros: i64) -> i64 {
    let of_these = (micros / jobs.max(1)).max(1);
    match before {
        0 => of_these,
        _ => (before - before / 8 + of_these / 8).max(1),
    }
}

/// The turn of a job: the first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) priority: i32,
    pub(crate) pass: i64,
}

/// Returns how many of the next turns each of these has, if it always has a further job of its cost.
pub(crate) fn next_turns(lines: &[(i32, &ShareUse, i64)], turns: i64) -> Vec<i64> {
    let first = |(place, (priority, used, _)): (usize, &(i32, &ShareUse, i64))| {
        Reverse((*priority, used.pass, place))
    };
    let mut next: BinaryHeap<_> = lines.iter().enumerate().map(first).collect();
    let mut of_lines = vec![0; lines.len()];
    for _ in 0..turns {
        let Some(Reverse((priority, pass, place))) = next.pop() else {
            break;
        };
        of_lines[place] += 1;
        let (_, used, cost) = lines[place];
        let pass = pass.saturating_add(used.share_of(cost));
        next.push(Reverse((priority, pass, place)));
    }
    of_lines
}

/// The time after which a use counts half, in microseconds.
const HALF: f64 = 60_000_000.0;

/// The most tenants of which it is known what they have used lately.
const MOST_TENANTS: usize = 50;

/// The use of tenants in the last minutes, for people to look at: of all, and of those that have used most.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecentUse(f64, Vec<(String, f64)>);

impl RecentUse {
    /// Reads the column.
    pub(crate) fn of_column(text: Option<&str>) -> Self {
        let read = text.and_then(|text| serde_json::from_str(text).ok());
        read.unwrap_or_default()
    }

    /// Lets time pass.
    pub(crate) fn age(&mut self, elapsed: i64) {
        let factor = 0.5_f64.powf(elapsed.max(0) as f64 / HALF);
        self.0 *= factor;
        self.1.iter_mut().for_each(|(_, used)| *used *= factor);
    }

    /// Adds the costs of tenants.
    pub(crate) fn add(&mut self, mut costs: BTreeMap<&str, i64>) {
        self.0 += costs.values().map(|cost| *cost as f64).sum::<f64>();
        for (tenant, used) in &mut self.1 {
            *used += costs.remove(&**tenant).unwrap_or(0) as f64;
        }
        let new = costs.into_iter();
        self.1
            .extend(new.map(|(tenant, cost)| (tenant.to_owned(), cost as f64)));
    }

    /// Returns the column.
    pub(crate) fn into_column(mut self) -> Option<String> {
        self.1.sort_by(|one, other| other.1.total_cmp(&one.1));
        self.1.truncate(MOST_TENANTS);
        serde_json::to_string(&self).ok().filter(|_| self.0 >= 1.0)
    }

    /// Returns the part of each tenant, from 0 to 1.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, f64)> {
        let all = self.0.max(1.0);
        self.1
            .iter()
            .map(move |(tenant, used)| (&**tenant, (used / all).clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_jobs_are_ready_as_start_soon() {
        // Long jobs, one by one.
        assert_eq!(places(8, 1, 1_000_000), 2);
        assert_eq!(places(1, 1, 1_000_000), 1);
        // Any number that is stored.
        assert_eq!(places(i64::MAX, i64::MAX, i64::MIN), MOST_PLACES);
        assert_eq!(places(i64::MIN, -1, 0), 1);
        // Nothing starts.
        assert_eq!(places(8, 0, 1_000_000), 8);
        // 500 and 20,000 jobs a second, again and again.
        let settled =
            |started, elapsed| (0..100).fold(1, |before, _| places(before, started, elapsed));
        assert_eq!(settled(1, 2_000), 3);
        assert!((470..490).contains(&settled(100, 5_000)));
        // 16 jobs each 100 ms.
        let wave = |before| places(places(before, 15, 4_000), 1, 96_000);
        assert!((0..100).fold(1, |before, _| wave(before)) <= 4);
    }

    #[test]
    fn the_next_turns_are_of_those_that_have_used_least() {
        let used = |pass, weight| ShareUse {
            pass,
            weight,
            mean: 0,
        };
        let (new, old, heavy) = (used(0, 1), used(25, 1), used(0, 3));
        let turns = |lines: &[(i32, &ShareUse, i64)]| next_turns(lines, 9);
        assert_eq!(turns(&[]), [0; 0]);
        assert_eq!(turns(&[(0, &new, 10)]), [9]);
        // At 0, 10 and 20, and then both by turns.
        assert_eq!(turns(&[(0, &new, 10), (0, &old, 10)]), [6, 3]);
        // Of those three times as many.
        assert_eq!(turns(&[(0, &new, 10), (0, &heavy, 10)]), [2, 7]);
        // Its jobs take a fourth of the time.
        assert_eq!(turns(&[(0, &new, 40), (0, &new, 10)]), [2, 7]);
        assert_eq!(turns(&[(5, &new, 10), (0, &old, 10)]), [0, 9]);
        // A job takes less than a microsecond for each unit of the weight.
        assert_eq!(
            turns(&[(0, &used(0, 1_000), 10), (0, &used(4, 1_000), 10)]),
            [7, 2]
        );
        assert_eq!(turns(&[(0, &used(i64::MAX, 1), 10); 2]), [9, 0]);
    }

    #[test]
    fn the_use_of_a_minute_ago_counts_half() {
        let mut recent = RecentUse::default();
        recent.add(BTreeMap::from([("acme", 300)]));
        recent.age(60_000_000);
        recent.add(BTreeMap::from([("globex", 50)]));
        let mut recent = RecentUse::of_column(recent.clone().into_column().as_deref());
        let parts: Vec<_> = recent.parts().collect();
        assert_eq!(parts, [("acme", 0.75), ("globex", 0.25)]);
        let small: Vec<String> = (0..99).map(|number| format!("small {number}")).collect();
        recent.add(small.iter().map(|tenant| (&**tenant, 1)).collect());
        let recent = RecentUse::of_column(recent.clone().into_column().as_deref());
        assert_eq!((recent.0, recent.1.len()), (299.0, MOST_TENANTS));
    }

    #[test]
    fn the_time_of_a_job_replaces_its_estimate() {
        let mut share = ShareUse {
            pass: 0,
            weight: 2,
            mean: 0,
        };
        share.add(share.cost(true, 400));
        assert_eq!(share.pass, 200);
        share.correct(1, 1_000, 400);
        assert_eq!((share.pass, share.mean), (500, 1_000));
        share.add(share.cost(true, 400));
        assert_eq!(share.pass, 1_000);
    }
}
