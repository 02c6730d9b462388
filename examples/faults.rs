//! Finds jobs that charge a customer twice, by a test with every fault.
//!
//! ```text
//! cargo run --example faults
//! ```
//!
//! Four versions of one job are examined. The first two have a defect that no ordinary test finds;
//! the last two are repaired. Nothing is killed and nothing waits, so this takes milliseconds:
//!
//! ```text
//! charge, then record it                charged twice with 6 of 11 faults, first: frozen before the job starts
//! look, charge, then record it          charged twice with 3 of 14 faults, first: killed at connection 2
//! charge with an idempotency key        charged once with each of 14 faults
//! record and finish in one transaction  charged once with each of 11 faults
//! ```
//!
//! The exit code is 0 when the first two are found, and the last two are right.

#![expect(clippy::print_stdout, reason = "it is a program")]

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use windlass::testing::{Drain, Fault, TestDatabase, for_each_fault};
use windlass::{AsConn, Context, Job, JobResult, NewJob, Policy, Registry};

type Failure = Box<dyn std::error::Error>;

/// A payment service. It is not part of any transaction.
#[derive(Debug, Default)]
struct Bank {
    charges: Mutex<Vec<i64>>,
    keys: Mutex<BTreeSet<String>>,
}

impl Bank {
    fn charge(&self, order: i64) {
        let mut charges = self.charges.lock().unwrap_or_else(PoisonError::into_inner);
        charges.push(order);
    }

    /// Charges only once for each key.
    fn charge_once(&self, order: i64, key: &str) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.insert(key.to_owned()) {
            self.charge(order);
        }
    }

    fn count(&self) -> i64 {
        let charges = self.charges.lock().unwrap_or_else(PoisonError::into_inner);
        i64::try_from(charges.len()).unwrap_or(i64::MAX)
    }
}

/// Charges, and records that.
#[derive(Serialize, Deserialize)]
struct Naive {
    order: i64,
}

impl Job for Naive {
    const NAME: &'static str = "naive";
    type State = Bank;
    type Output = ();

    fn perform(self, cx: &Context<'_, Bank>) -> JobResult {
        cx.charge(self.order);
        record(&mut *cx.sqlite()?, self.order)?;
        Ok(())
    }
}

/// Looks first whether it was recorded. A crash between the charge and its record is still a defect.
#[derive(Serialize, Deserialize)]
struct Careful {
    order: i64,
}

impl Job for Careful {
    const NAME: &'static str = "careful";
    type State = Bank;
    type Output = ();

    fn perform(self, cx: &Context<'_, Bank>) -> JobResult {
        if recorded(&mut *cx.sqlite()?)? > 0 {
            return Ok(());
        }
        cx.charge(self.order);
        record(&mut *cx.sqlite()?, self.order)?;
        Ok(())
    }
}

/// Repaired: the bank gets a key that is the same in each run.
#[derive(Serialize, Deserialize)]
struct Keyed {
    order: i64,
}

impl Job for Keyed {
    const NAME: &'static str = "keyed";
    type State = Bank;
    type Output = ();

    fn perform(self, cx: &Context<'_, Bank>) -> JobResult {
        if recorded(&mut *cx.sqlite()?)? > 0 {
            return Ok(());
        }
        cx.charge_once(self.order, &format!("order {}", self.order));
        record(&mut *cx.sqlite()?, self.order)?;
        Ok(())
    }
}

/// Repaired: where the record is the charge, it ends the job in the same transaction.
#[derive(Serialize, Deserialize)]
struct Finishing {
    order: i64,
}

impl Job for Finishing {
    const NAME: &'static str = "finishing";
    type State = Bank;
    type Output = ();

    fn perform(self, cx: &Context<'_, Bank>) -> JobResult {
        let conn = &mut *cx.sqlite()?;
        conn.transaction(|conn| {
            record(conn, self.order)?;
            cx.finish_in(conn)
        })
    }
}

fn record(conn: &mut SqliteConnection, order: i64) -> QueryResult<usize> {
    diesel::sql_query("INSERT INTO charges (order_id) VALUES (?)")
        .bind::<BigInt, _>(order)
        .execute(conn)
}

fn recorded(conn: &mut SqliteConnection) -> QueryResult<i64> {
    diesel::select(diesel::dsl::sql::<BigInt>("(SELECT count(*) FROM charges)")).get_result(conn)
}

/// Examines a job, prints what was found, and returns with how many faults it charged twice.
fn examine<J: Job<State = Bank>>(
    title: &str,
    job: impl Fn() -> J,
    charges: impl Fn(&Bank, i64) -> i64,
) -> usize {
    let (mut faults, mut doubled): (usize, Vec<Fault>) = (0, Vec::new());
    for_each_fault(TestDatabase::in_memory, |fault, db| {
        let conn = db.as_conn().sqlite()?;
        conn.batch_execute("CREATE TABLE charges (order_id bigint NOT NULL)")?;
        let bank = Arc::new(Bank::default());
        let registry = Registry::new().register::<J>(Arc::clone(&bank));
        let three = Policy::new().max_attempts(3);
        NewJob::new(&job())?.policy(three).enqueue(db)?;

        let drained = Drain::new(&registry).retries().fault(fault).run(db)?;

        drained.assert_all_finished_in_the_end(1);
        faults += 1;
        if charges(&bank, recorded(db.as_conn().sqlite()?)?) != 1 {
            doubled.push(fault);
        }
        Ok::<(), Failure>(())
    });
    let found = match doubled.first() {
        None => format!("charged once with each of {faults} faults"),
        Some(first) => format!(
            "charged twice with {} of {faults} faults, first: {first}",
            doubled.len()
        ),
    };
    println!("{title:38}{found}");
    doubled.len()
}

fn main() -> ExitCode {
    let at_the_bank = |bank: &Bank, _| bank.count();
    let order = 42;
    let found = [
        examine("charge, then record it", || Naive { order }, at_the_bank),
        examine(
            "look, charge, then record it",
            || Careful { order },
            at_the_bank,
        ),
        examine(
            "charge with an idempotency key",
            || Keyed { order },
            at_the_bank,
        ),
        examine(
            "record and finish in one transaction",
            || Finishing { order },
            |_, records| records,
        ),
    ];
    let [naive, careful, keyed, finishing] = found;
    match naive > 0 && careful > 0 && keyed + finishing == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
