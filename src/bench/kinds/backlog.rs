//! Jobs that do nothing, among very many waiting jobs, very many queues, or dead rows.

use crate::bench::comparison::{Ceiling, Comparison, Value};
use crate::bench::counters;
use crate::bench::drains;
use crate::bench::jobs::nothing;
use crate::bench::program::Setup;
use crate::bench::run::Run;
use crate::db::AsConn as _;
use crate::error::{Doing as _, Result};

/// Jobs that wait beside the counted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Jobs(u32),
    Queues(u64),
    /// Also dead rows: others have drained jobs while a transaction stays open, so that no vacuum
    /// can remove their rows.
    Transaction,
}

/// How many times the counted number of jobs is drained first.
const WAVES: u32 = 5;

pub(crate) fn comparisons(run: &Run) -> Vec<Comparison> {
    let (jobs, backlog) = (run.jobs(drains::NO_OP), run.settings.backlog);
    let of = |beside: Beside, figure: String| {
        Comparison::new(figure, move |run| drain(run, jobs, beside))
            .beside(Ceiling::one("nothing beside", move |run| {
                drain(run, jobs, Beside::Jobs(0))
            }))
    };
    vec![
        of(Beside::Jobs(backlog), format!("{backlog} jobs waiting")),
        of(Beside::Queues(10_000), "10000 queues".to_owned()),
        of(
            Beside::Transaction,
            "a transaction open meanwhile".to_owned(),
        ),
    ]
}

fn drain(run: &Run, jobs: u32, beside: Beside) -> Result<Vec<Value>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let setup = Setup {
        threads: run.settings.threads,
        runs: u64::from(jobs),
        delete: false,
        dispatcher: false,
    };
    let mut reader = database.connect()?;
    let mut connection = database.connect()?;
    if beside == Beside::Transaction {
        counters::open_snapshot(&mut reader.as_conn()).doing("open a transaction")?;
        for _ in 0..WAVES {
            drains::fill(&mut connection, jobs, &nothing)?;
            drains::move_jobs(run, place.url(), &database, setup)?;
        }
    }
    drains::fill(&mut connection, jobs, &|number| match beside {
        Beside::Queues(queues) => Ok(nothing(number)?.queue(format!("queue_{}", number % queues))),
        _ => nothing(number),
    })?;
    if let Beside::Jobs(waiting) = beside {
        drains::fill(&mut connection, waiting, &nothing)?;
    }
    let cost = drains::move_jobs(run, place.url(), &database, setup)?;
    Ok(drains::rate(&cost))
}
