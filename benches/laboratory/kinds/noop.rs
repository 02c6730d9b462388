//! Jobs that do nothing.

use crate::laboratory::ceilings::Plain;
use crate::laboratory::comparison::Comparison;
use crate::laboratory::drains;
use crate::laboratory::jobs::nothing;
use crate::laboratory::plain::outcome;
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let jobs = run.jobs(drains::NO_OP);
    let mut all = Vec::new();
    for (what, delete, last) in [
        ("kept", false, outcome::KEEP),
        ("deleted", true, outcome::DELETE),
    ] {
        let ceiling = Plain {
            last,
            ..Plain::of(run, jobs)
        };
        let mut threads = vec![1, run.settings.threads];
        threads.dedup();
        for threads in threads {
            let setup = Setup {
                threads,
                runs: u64::from(jobs),
                delete,
                dispatcher: false,
                queue: "*",
            };
            let windlass = move |run: &BenchRun| {
                let cost = drains::drain(run, setup, |database| {
                    drains::fill(&mut database.connect()?, jobs, &nothing)
                })?;
                let mut values = drains::rate(&cost);
                values.extend(drains::costs(&cost));
                Ok(values)
            };
            let comparison = Comparison::new(format!("{what}, {threads} threads"), windlass);
            let comparison = comparison.beside(ceiling.ceiling());
            all.push(comparison.beside(ceiling.by_the_hundred()));
        }
    }
    all
}
