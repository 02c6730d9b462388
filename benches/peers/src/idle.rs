//! The work that a worker makes while it has no job.

use crate::Options;
use crate::database::Database;
use crate::measure::{IDLE_WORKERS, Measured, expect, whole};
use crate::place::Place;
use crate::program::Program;
use crate::row::{Idle, Row};
use crate::setting::Setting;
use crate::usage::Usage;
use anyhow::Result;
use std::time::Duration;
use windlass_peers_driver::{Answer, Command, Work};

/// The time after which a worker has settled.
const START: Duration = Duration::from_secs(2);

/// The time for which it is watched then.
const WATCHED: Duration = Duration::from_secs(8);

/// The server counts the transactions of a session late, but all of them when it ends. So one
/// process ends when it has settled, and another one after the time that counts.
pub(crate) fn measure(options: &Options, setting: Setting) -> Result<Measured> {
    let (started, _) = watch(options, setting, Duration::ZERO)?;
    let (all, used) = watch(options, setting, WATCHED)?;
    let seconds = WATCHED.as_secs_f64();
    let mut measured = Measured::new();
    if let Some((all, started)) = all.zip(started) {
        let a_second = all.saturating_sub(started) as f64 / seconds;
        measured.push((Row::Idle(Idle::Transactions), whole(a_second)));
    }
    let time = used.worker + used.server.unwrap_or_default();
    let percent = time.as_secs_f64() / seconds * 100.0;
    measured.push((Row::Idle(Idle::Processor), whole(percent)));
    Ok(measured)
}

/// Returns the transactions of a process from its start on, and what it used once it had settled.
fn watch(options: &Options, setting: Setting, time: Duration) -> Result<(Option<u64>, Usage)> {
    let place = Place::create(options, setting)?;
    let mut producer = Program::start(setting, &place)?;
    expect(Answer::Done, producer.ask(Command::Migrate)?)?;
    drop(producer);
    let mut database = Database::connect(&place.url)?;
    database.wait_until_alone()?;
    let before = database.transactions()?;
    let mut program = Program::start(setting, &place)?;
    let command = Command::Connect {
        work: Work::Nothing,
        workers: IDLE_WORKERS,
        jobs: 0,
    };
    expect(Answer::Done, program.ask(command)?)?;
    expect(Answer::Done, program.ask(Command::Start)?)?;
    std::thread::sleep(START);
    let settled = Usage::now(program.id(), &mut database)?;
    std::thread::sleep(time);
    let used = Usage::now(program.id(), &mut database)?.since(settled);
    drop(program);
    database.wait_until_alone()?;
    let after = database.transactions()?;
    let transactions = after.zip(before);
    let transactions = transactions.map(|(after, before)| after.saturating_sub(before));
    Ok((transactions, used))
}
