//! The tokens of rates, by the reference and by a database, and time that passes.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Model, Place};
use crate::db::internal_tests::model::transitions::Taken;
use crate::db::model::rate::{NewRate, RatePace};
use crate::db::table::rates;
use crate::db::transition::pause;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};

/// The starts in an hour of each key, and at once.
pub const PACES: [(i64, i64); 3] = [(1, 3), (2, 4), (1, 1)];

/// The seconds in a unit of time. No sequence takes as long, and no two times that are compared are the same.
pub const UNIT: u16 = 450;

/// The units in an hour, and the parts of a token.
const HOUR: i64 = 3_600 / UNIT as i64;

/// The tokens of a key, as they were when they were counted last.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyTokens {
    /// In parts.
    level: i64,
    pub counted_at: i64,
    closed_until: i64,
    /// The cost of jobs that were let through, and of which no start was counted.
    promised: BTreeMap<usize, i64>,
    /// The time and the cost of each start.
    starts: Vec<(i64, i64)>,
}

impl KeyTokens {
    fn level_at(&self, key: u8, now: i64) -> i64 {
        let (number, burst) = PACES[usize::from(key)];
        (self.level + number * (now - self.counted_at)).min(burst * HOUR)
    }

    fn tokens(&self, key: u8, now: i64) -> i64 {
        self.level_at(key, now).div_euclid(HOUR) - self.promised.values().sum::<i64>()
    }
}

fn key_name(key: u8) -> String {
    format!("rate/{key}")
}

/// Returns a rate with which a job is enqueued.
pub fn new_rate(&(key, cost): &(u8, u8)) -> NewRate {
    let (number, burst) = PACES[usize::from(key)];
    NewRate {
        key: key_name(key),
        pace: RatePace {
            number,
            period: 3_600_000_000,
            burst,
        },
        cost: cost.into(),
    }
}

impl Model {
    fn rate(&mut self, key: u8) -> &mut KeyTokens {
        let (_, burst) = PACES[usize::from(key)];
        self.rates.entry(key).or_insert(KeyTokens {
            level: burst * HOUR,
            counted_at: self.now,
            closed_until: 0,
            promised: BTreeMap::new(),
            starts: Vec::new(),
        })
    }

    pub fn has_tokens(&self, key: u8, cost: u8) -> bool {
        let is_there =
            |of: &KeyTokens| of.closed_until <= self.now && of.tokens(key, self.now) >= cost.into();
        self.rates.get(&key).is_none_or(is_there)
    }

    /// Promises tokens to a job that goes on.
    pub fn promise(&mut self, job: usize) -> Result<(), String> {
        for (key, cost) in self.jobs[job].new.rates.clone() {
            if !self.has_tokens(key, cost) {
                return Err(format!(
                    "{} is closed for job {job}: {:?}",
                    key_name(key),
                    self.rates
                ));
            }
            self.rate(key).promised.insert(job, cost.into());
        }
        Ok(())
    }

    /// Returns whether jobs have started, or are gone, whose tokens are only promised.
    pub fn has_uncounted(&self) -> bool {
        let mut jobs = self.rates.values().flat_map(|rate| rate.promised.keys());
        jobs.any(|job| self.jobs[*job].place != Place::Ready)
    }

    /// Takes the tokens of jobs that have started, or are gone.
    pub fn count_starts(&mut self) {
        let is_ready: Vec<bool> = self
            .jobs
            .iter()
            .map(|job| job.place == Place::Ready)
            .collect();
        for (key, rate) in &mut self.rates {
            rate.level = rate.level_at(*key, self.now);
            rate.counted_at = self.now;
            rate.promised.retain(|job, cost| {
                rate.level -= if is_ready[*job] { 0 } else { *cost * HOUR };
                is_ready[*job]
            });
        }
    }

    /// A job starts. Returns the promise that this breaks, if it does: no window of time has too many starts.
    pub fn start(&mut self, job: usize) -> Option<String> {
        let now = self.now;
        for (key, cost) in self.jobs[job].new.rates.clone() {
            let (number, burst) = PACES[usize::from(key)];
            let starts = &mut self.rate(key).starts;
            starts.push((now, cost.into()));
            let mut since = 0;
            for (from, cost) in starts.iter().rev() {
                since += cost * HOUR;
                if since > number * (now - from) + burst * HOUR {
                    return Some(format!("too many starts of {}: {starts:?}", key_name(key)));
                }
            }
        }
        None
    }

    /// The other side has refused a job.
    pub fn close_rate(&mut self, job: usize, seconds: u16) {
        let until = self.now + i64::from(seconds / UNIT);
        if let Some((key, _)) = self.jobs[job].new.rates.first().copied() {
            let rate = self.rate(key);
            rate.closed_until = rate.closed_until.max(until);
        }
    }

    pub fn reopen(&mut self, key: u8) -> Answer {
        let now = self.now;
        let closed = self
            .rates
            .get_mut(&key)
            .filter(|rate| rate.closed_until > now);
        Answer::Is(closed.map(|rate| rate.closed_until = 0).is_some())
    }

    pub fn pass_time(&mut self, units: u8) -> Answer {
        self.now += i64::from(units);
        Answer::Nothing
    }

    /// Compares the tokens, as an operator sees them. Keys that are open and full may be forgotten.
    pub fn check_rates(&self, conn: &mut Conn<'_>) -> Result<(), String> {
        if self.rates.is_empty() {
            return Ok(());
        }
        let line =
            |key: String, tokens: i64, is_closed: bool| format!("{key} {tokens} {is_closed}");
        let is_full = |key: u8, tokens: i64| tokens == PACES[usize::from(key)].1;
        let known = self.rates.iter().map(|(key, rate)| {
            (
                *key,
                rate.tokens(*key, self.now),
                rate.closed_until > self.now,
            )
        });
        let known = known.filter(|(key, tokens, is_closed)| *is_closed || !is_full(*key, *tokens));
        let known: BTreeSet<String> = known
            .map(|(key, tokens, is_closed)| line(key_name(key), tokens, is_closed))
            .collect();
        let found = rates::keys_in_use(conn, "", 100).unwrap().into_iter();
        let found = found.map(|one| (one.key, one.tokens, one.closed_seconds.is_some()));
        let found = found.filter(|(key, tokens, is_closed)| {
            let number = key
                .rsplit('/')
                .next()
                .and_then(|number| number.parse().ok());
            *is_closed || !number.is_some_and(|number| is_full(number, *tokens))
        });
        let found: BTreeSet<String> = found
            .map(|(key, tokens, is_closed)| line(key, tokens, is_closed))
            .collect();
        match known == found {
            true => Ok(()),
            false => Err(format!(
                "the rates should be {known:?}, and are {found:?}: {:?}",
                self.rates
            )),
        }
    }
}

impl Taken<'_> {
    pub fn reopen(&mut self, key: u8) -> QueryResult<Answer> {
        let key = key_name(key);
        let is_open = pause::reopen(&mut self.conn, &key)?;
        if is_open {
            pause::look_at_rates(&mut self.conn, BTreeSet::from([key]))?;
        }
        Ok(Answer::Is(is_open))
    }

    pub fn pass_time(&mut self, units: u8) -> QueryResult<Answer> {
        let seconds = i64::from(units) * i64::from(UNIT);
        rates::travel(&mut self.conn, seconds * 1_000_000).map(|()| Answer::Nothing)
    }
}
