//! The kinds of measurement, the same for every system. The end of each is read from the database.

use crate::database::Database;
use crate::place::Place;
use crate::program::Program;
use crate::row::{Cost, Part, Row, Since};
use crate::setting::Setting;
use crate::usage::{Usage, most_memory};
use crate::{Options, idle};
use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use windlass_peers_driver::{Answer, Command, Work};

/// Workers of the process whose pick-up is measured.
pub(crate) const IDLE_WORKERS: u32 = 4;

/// The longest time from the last success until the database shows that all jobs have ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// The result of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Value {
    /// In the unit of the row.
    pub(crate) value: f64,
    /// True if the time was up before every job was done.
    pub(crate) cut_off: bool,
}

/// The results of a measurement; empty if a system has no such call.
pub(crate) type Measured = Vec<(Row, Value)>;

pub(crate) fn whole(value: f64) -> Value {
    let cut_off = false;
    Value { value, cut_off }
}

pub(crate) fn measure(options: &Options, setting: Setting, row: Row) -> Result<Measured> {
    if let Row::Idle(_) = row {
        return idle::measure(options, setting);
    }
    let place = Place::create(options, setting)?;
    let mut producer = Program::start(setting, &place)?;
    expect(Answer::Done, producer.ask(Command::Migrate)?)?;
    let this = Measurement {
        options,
        setting,
        row,
        place: &place,
    };
    match row {
        Row::Drain(work, workers) => this.drain(producer, work, workers),
        Row::Backlog => this.drain(producer, Work::Nothing, 16),
        Row::Limit => this.drain(producer, Work::Alone, 16),
        Row::Enqueue(callers) => {
            let each = options.singles;
            this.enqueue(
                producer,
                Command::EnqueueSingly { callers, each },
                callers * each,
            )
        }
        Row::Bulk => {
            let jobs = row.jobs(options.jobs);
            this.enqueue(producer, Command::EnqueueInBulk(jobs), jobs)
        }
        Row::PickUp(..) => this.pick_up(producer),
        Row::Idle(_) | Row::Cost(_) => bail!("another row's measurement has it"),
    }
}

struct Measurement<'m> {
    options: &'m Options,
    setting: Setting,
    row: Row,
    place: &'m Place,
}

impl Measurement<'_> {
    fn enqueue(&self, mut producer: Program, command: Command, jobs: u32) -> Result<Measured> {
        let took = match producer.ask(command)? {
            Answer::Took(time) => time,
            Answer::HasNone => return Ok(Measured::new()),
            other => bail!("a driver that enqueues said {other:?}"),
        };
        let mut database = Database::connect(&self.place.url)?;
        let there = database.count(self.setting.unfinished())?;
        ensure!(
            there == u64::from(jobs),
            "{there} of {jobs} jobs were enqueued"
        );
        Ok(vec![(self.row, whole(rate(there, took)))])
    }

    /// From the start of so many workers in a process of their own until the database has no
    /// unfinished job, or for the time that this may take at most.
    fn drain(&self, mut producer: Program, work: Work, workers: u32) -> Result<Measured> {
        let (jobs, fill) = match self.row {
            Row::Backlog => (self.options.backlog, Command::Fill(self.options.backlog)),
            row => {
                let jobs = row.jobs(self.options.jobs);
                let is_limited = row == Row::Limit;
                let fill = if is_limited {
                    Command::FillLimited(jobs)
                } else {
                    Command::Fill(jobs)
                };
                (jobs, fill)
            }
        };
        match producer.ask(fill)? {
            Answer::HasNone => return Ok(Measured::new()),
            answer => expect(Answer::Done, answer)?,
        }
        drop(producer);
        let mut database = Database::connect(&self.place.url)?;
        // So that no plan suffers from a lack of statistics.
        database.execute("ANALYZE")?;
        let mut program = Program::start(self.setting, self.place)?;
        let command = Command::Connect {
            work,
            workers,
            jobs,
        };
        expect(Answer::Done, program.ask(command)?)?;
        let before = Usage::now(program.id(), &mut database)?;
        let start = Instant::now();
        program.send(Command::Start)?;
        let all = self.wait_until_all(&program, start + self.options.limit)?;
        if all {
            self.wait_until_ended(&mut database)?;
        }
        let took = start.elapsed();
        let used = Usage::now(program.id(), &mut database)?.since(before);
        let memory = most_memory(program.id())?;
        let (done, runs) = program.counted()?;
        drop(program);
        if runs > done {
            eprintln!("note: {} jobs ran twice", runs - done);
        }
        let ended = self.ended(&mut database, (jobs, done), work)?;
        let value = Value {
            value: rate(ended, took),
            cut_off: ended < jobs.into() && self.row != Row::Backlog,
        };
        let mut measured = vec![(self.row, value)];
        if self.row == Row::Cost(Cost::Worker).source() {
            measured.extend(prices(used, memory, ended));
        }
        Ok(measured)
    }

    /// Returns `false` if there is no time left.
    fn wait_until_all(&self, program: &Program, deadline: Instant) -> Result<bool> {
        loop {
            match program.answer_until(deadline)? {
                Some(Answer::AllSucceeded) => return Ok(true),
                Some(Answer::Done) => {}
                Some(other) => bail!("a driver that drains said {other:?}"),
                None => return Ok(false),
            }
        }
    }

    /// Performed is not yet ended: the database has to know it, too.
    fn wait_until_ended(&self, database: &mut Database) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while database.exists(self.setting.unfinished())? {
            if Instant::now() > deadline {
                bail!("all jobs were performed, but some do not end");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns the number of jobs that have ended for the database. Every job that was done has had
    /// its effect, and those that were not are still there.
    fn ended(&self, database: &mut Database, (jobs, done): (u32, u64), work: Work) -> Result<u64> {
        database.wait_until_alone()?;
        let left = database.count(self.setting.unfinished())?;
        let lost = u64::from(jobs).saturating_sub(done + left);
        ensure!(lost == 0, "{lost} of {jobs} jobs were lost");
        let ended = u64::from(jobs).saturating_sub(left);
        if let Some(query) = self.setting.ended() {
            let kept = database.count(query)?;
            ensure!(kept == ended, "{kept} jobs have ended well, not {ended}");
        }
        if work == Work::Insert {
            let effects =
                database.count("FROM (SELECT DISTINCT number FROM effects) AS numbers")?;
            ensure!(
                effects >= done,
                "{done} jobs were done, but only {effects} inserted a row"
            );
        }
        Ok(ended)
    }

    /// In idle workers of another process, or of the same one if only that wakes them.
    fn pick_up(&self, mut producer: Program) -> Result<Measured> {
        let mut program = Program::start(self.setting, self.place)?;
        let command = Command::Connect {
            work: Work::Stamp,
            workers: IDLE_WORKERS,
            jobs: 0,
        };
        expect(Answer::Done, program.ask(command)?)?;
        expect(Answer::Done, program.ask(Command::Start)?)?;
        let (mut from_call, mut from_answer) = (Vec::new(), Vec::new());
        // The first ones wake up everything and do not count.
        let warm_up = 3;
        for sample in 0..self.options.samples + warm_up {
            std::thread::sleep(Duration::from_millis(fastrand::u64(20..=80)));
            let (called, answered, began) = if self.setting.wakes_only_itself() {
                program.send(Command::Enqueue)?;
                stamps([program.answer()?, program.answer()?])?
            } else {
                stamps([producer.ask(Command::Enqueue)?, program.answer()?])?
            };
            if sample >= warm_up {
                from_call.push(millis(began.saturating_sub(called)));
                from_answer.push(millis(began.saturating_sub(answered)));
            }
        }
        from_call.sort_by(f64::total_cmp);
        from_answer.sort_by(f64::total_cmp);
        let rows = Row::ALL.into_iter().filter_map(|row| match row {
            Row::PickUp(Since::Call, part) => Some((row, whole(quantile(&from_call, part)))),
            Row::PickUp(Since::Answer, part) => Some((row, whole(quantile(&from_answer, part)))),
            _ => None,
        });
        Ok(rows.collect())
    }
}

/// The prices of a drain of so many jobs.
fn prices(used: Usage, memory: u64, jobs: u64) -> Measured {
    let jobs = jobs.max(1) as f64;
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / jobs;
    let prices = [
        (Cost::Worker, Some(micros(used.worker))),
        (Cost::Server, used.server.map(micros)),
        (Cost::Log, used.log.map(|bytes| bytes as f64 / jobs)),
        (Cost::Memory, Some(memory as f64 / 1e6)),
    ];
    let prices = prices.into_iter();
    let prices = prices.filter_map(|(cost, price)| Some((Row::Cost(cost), whole(price?))));
    prices.collect()
}

pub(crate) fn expect(expected: Answer, answer: Answer) -> Result<()> {
    ensure!(answer == expected, "a driver said {answer:?}");
    Ok(())
}

/// Returns the start and the return of an enqueue, and the start of its job, from answers in any
/// order.
fn stamps(answers: [Answer; 2]) -> Result<(Duration, Duration, Duration)> {
    let mut enqueued = None;
    let mut began = None;
    for answer in answers {
        match answer {
            Answer::Enqueued(called, answered) => enqueued = Some((called, answered)),
            Answer::Began(at) => began = Some(at),
            other => bail!("instead of beginning a job, a driver said {other:?}"),
        }
    }
    let (called, answered) = enqueued.context("no job was enqueued")?;
    Ok((called, answered, began.context("no job began")?))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn rate(jobs: u64, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64().max(1e-9)
}

/// The value that so large a part does not exceed, of sorted ones.
fn quantile(sorted: &[f64], part: Part) -> f64 {
    let part = match part {
        Part::P50 => 0.5,
        Part::P99 => 0.99,
    };
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&values, Part::P50), 2.0);
        assert_eq!(quantile(&values, Part::P99), 4.0);
        assert_eq!(quantile(&[], Part::P50), 0.0);
    }
}
