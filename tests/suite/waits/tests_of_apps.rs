//! Waits in the tests of an application.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::events::emit;
use windlass::testing::{self, Drain, RunOutcome, TestDatabase};
use windlass::{Context, Job, JobResult, Registry};

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Serialize, Deserialize)]
struct Order;

impl Job for Order {
    const NAME: &'static str = "order";
    type State = ();
    type Output = Option<i64>;

    fn perform(self, cx: &Context<'_, ()>) -> JobResult<Option<i64>> {
        cx.pause_for("pause", DAY)?;
        cx.memo("charge", || Ok(()))?;
        cx.wait_event("paid", "paid/7", DAY)
    }
}

fn registry() -> Registry {
    Registry::new().register::<Order>(())
}

fn outcomes(drained: &testing::Drained) -> Vec<RunOutcome> {
    drained.runs.iter().map(|run| run.outcome.clone()).collect()
}

fn waits(step: &str) -> RunOutcome {
    RunOutcome::Waits(step.to_owned())
}

#[test]
fn a_drain_follows_waits() {
    let db = &mut TestDatabase::in_memory().unwrap();
    Order.enqueue(db).unwrap();
    let drained = db.drain(&registry()).unwrap();
    assert_eq!(outcomes(&drained), [waits("pause")]);
    let drained = db.drain(&registry()).unwrap();
    assert_eq!(outcomes(&drained), []);
    testing::travel(db, DAY).unwrap();
    let drained = db.drain(&registry()).unwrap();
    assert_eq!(outcomes(&drained), [waits("paid")]);
    emit(db, "paid/7", &990).unwrap();
    db.drain(&registry()).unwrap().assert_all_finished(1);
}

#[test]
fn a_drain_notices_time_outs() {
    let db = &mut TestDatabase::in_memory().unwrap();
    Order.enqueue(db).unwrap();
    let drained = Drain::new(&registry()).scheduled().run(db).unwrap();
    assert_eq!(outcomes(&drained), [waits("pause"), waits("paid")]);
    testing::travel(db, DAY).unwrap();
    db.drain(&registry()).unwrap().assert_all_finished(1);
}

#[test]
fn an_event_performs_jobs_at_once() {
    let db = &mut TestDatabase::in_memory().unwrap();
    let registry = registry();
    let mut inline = db.inline(&registry);
    Order.enqueue(&mut inline).unwrap();
    testing::travel(&mut inline, DAY).unwrap();
    emit(&mut inline, "paid/7", &990).unwrap();
    let drained = inline.drained();
    assert_eq!(
        outcomes(&drained),
        [waits("pause"), waits("paid"), RunOutcome::Finished]
    );
}
