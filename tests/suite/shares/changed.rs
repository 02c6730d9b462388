//! Queues that are shared, or shared no more, while jobs wait.

use super::{drained, jobs_of, of_each, share, worked};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::jobs::Note;
use windlass::jobs::{Change, Jobs};
use windlass::limits::Rate;
use windlass::tenants::{self, ShareBy};
use windlass::{Error, NewJob, Registry, enqueue_all, testing};

/// Jobs that are ready already wait for their turn as well.
fn a_backlog_is_shared(db: &TestDb) {
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs_of("acme", 700)).unwrap();
    enqueue_all(&mut conn, jobs_of("globex", 20)).unwrap();
    let free = NewJob::new(&Note::new("free")).unwrap().queue("mail");
    free.enqueue(&mut conn).unwrap();
    assert_eq!(db.rows("ready_executions"), 721);
    share(db);
    let order = drained(db);
    assert_eq!(order.len(), 721);
    let last = order.iter().rposition(|tenant| tenant == "globex");
    assert!(last.unwrap() < 200, "{order:?}");
    assert_eq!(db.rows_of("windlass_lines"), 0);
}

fn waiting_jobs_go_on(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs_of("acme", 600)).unwrap();
    enqueue_all(&mut conn, jobs_of("globex", 3)).unwrap();
    assert!(tenants::unshare(&mut conn, "mail").unwrap());
    assert!(!tenants::unshare(&mut conn, "mail").unwrap());
    assert!(tenants::queues(&mut conn).unwrap().is_empty());
    // Those that come now wait for no turn.
    enqueue_all(&mut conn, jobs_of("late", 1)).unwrap();
    assert_eq!(db.rows("blocked_executions"), 603);
    // A queue that ends waits for none of its jobs.
    let none = Registry::new();
    let none = testing::Drain::new(&none).run_on(&mut conn).unwrap();
    none.assert_all_finished(0);
    let waited_for = "SELECT count(*) AS n FROM windlass_fair_queues WHERE promised IS NOT NULL";
    assert_eq!(db.count(waited_for), 0);
    assert_eq!(worked(db, 604).len(), 604);
    for table in ["windlass_fair_queues", "windlass_lines", "windlass_shares"] {
        assert_eq!(db.rows_of(table), 0, "{table}");
    }
}

/// Moved jobs take part in the shares of their new queue, and in those of their old one no more.
fn jobs_that_are_moved(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let acme = enqueue_all(&mut conn, jobs_of("acme", 3)).unwrap();
    let plain = jobs_of("plain", 2).map(|job| job.queue("plain"));
    let plain = enqueue_all(&mut conn, plain).unwrap();
    let moved = |jobs: &[windlass::Enqueued], queue: &str| {
        let jobs = Jobs::waiting().ids(jobs.iter().map(|job| job.id));
        let change = Change::Queue(queue.to_owned());
        jobs.change(&mut db.connection(), change).unwrap().changed
    };
    assert_eq!(moved(&acme[..2], "plain"), 2);
    let gates = "SELECT count(*) AS n FROM solid_queue_jobs WHERE gate IS NOT NULL";
    assert_eq!((db.count(gates), db.rows("ready_executions")), (1, 4));
    let scheduled =
        jobs_of("later", 1).map(|job| job.queue("plain").after(std::time::Duration::from_secs(60)));
    let scheduled = enqueue_all(&mut conn, scheduled).unwrap();
    assert_eq!((moved(&scheduled, "mail"), db.count(gates)), (1, 2));
    assert_eq!(moved(&plain, "mail"), 2);
    assert_eq!(drained(db).len(), 5);
}

fn tenants_are_listed(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    tenants::set_weight(&mut conn, "mail", "acme", 3).unwrap();
    assert!(!tenants::set_weight(&mut conn, "mail", "acme", 3).unwrap());
    for tenant in ["acme", "globex"] {
        enqueue_all(&mut conn, jobs_of(tenant, 400)).unwrap();
    }
    let order = drained(db);
    let used = of_each(&order, 400);
    assert!(used["acme"] > used["globex"]);
    enqueue_all(&mut conn, jobs_of("globex", 4)).unwrap();
    let listed = tenants::list(&mut conn, "mail").unwrap();
    let of = |name: &str| listed.iter().find(|tenant| tenant.tenant == name).unwrap();
    assert_eq!((of("acme").weight, of("acme").waiting), (3, 0));
    assert_eq!(of("globex").weight, 1);
    let shares = of("acme").share + of("globex").share;
    assert!((0.99..1.01).contains(&shares), "{listed:?}");
    tenants::share(&mut conn, "mail", ShareBy::Time).unwrap();
    let queue = &tenants::queues(&mut conn).unwrap()[0];
    assert_eq!((&*queue.queue, queue.by), ("mail", ShareBy::Time));
    assert!(tenants::set_weight(&mut conn, "mail", "acme", 1).unwrap());
    assert_eq!(db.rows_of("windlass_tenants"), 0);
}

fn wrong_names_and_weights_are_refused(db: &TestDb) {
    let mut conn = db.connection();
    for weight in [0, 1_001, u32::MAX] {
        let refused = tenants::set_weight(&mut conn, "mail", "acme", weight);
        assert!(matches!(refused, Err(Error::Settings(_))), "{refused:?}");
    }
    for name in ["", "a\u{1d}b", "a\nb", "a\0b", &"x".repeat(256)] {
        assert!(tenants::share(&mut conn, name, ShareBy::Jobs).is_err());
        assert!(tenants::set_weight(&mut conn, "mail", name, 2).is_err());
        assert!(!tenants::unshare(&mut conn, name).unwrap());
        let job = NewJob::new(&Note::new("a")).unwrap().tenant(name);
        assert!(job.enqueue(&mut conn).is_err(), "{name:?}");
    }
    assert_eq!(db.rows("jobs"), 0);
}

/// A caller that changes a queue in a transaction that stays open, or is frozen in it.
fn an_open_change_holds_up_no_other(db: &TestDb) {
    if !db.is_postgres() {
        return; // No other connection writes there.
    }
    let mut conn = db.connection();
    for queue in ["mail", "other"] {
        tenants::share(&mut conn, queue, ShareBy::Jobs).unwrap();
    }
    let mut frozen = db.connection();
    execute(&mut frozen, "BEGIN");
    let change = "UPDATE windlass_fair_queues SET by_time = true WHERE queue_name = 'mail'";
    execute(&mut frozen, change);
    enqueue_all(&mut conn, jobs_of("held", 2)).unwrap();
    let others = jobs_of("acme", 2).map(|job| job.queue("other"));
    enqueue_all(&mut conn, others).unwrap();
    assert_eq!(drained(db), ["acme"; 2]);
    execute(&mut frozen, "ROLLBACK");
    assert_eq!(drained(db), ["held"; 2]);
}

/// The database refuses every look at one of the queues.
fn a_refused_queue_holds_up_no_other(db: &TestDb) {
    let mut conn = db.connection();
    for queue in ["bad", "mail"] {
        tenants::share(&mut conn, queue, ShareBy::Jobs).unwrap();
    }
    match db.is_postgres() {
        false => {
            db.execute("CREATE TRIGGER refuse BEFORE UPDATE ON windlass_fair_queues WHEN NEW.queue_name = 'bad' BEGIN SELECT RAISE(ABORT, 'refused'); END");
        }
        true => {
            db.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE check_violation; END $$");
            db.execute("CREATE TRIGGER refuse BEFORE UPDATE ON windlass_fair_queues FOR EACH ROW WHEN (NEW.queue_name = 'bad') EXECUTE FUNCTION refuse()");
        }
    }
    let bad = jobs_of("acme", 3).map(|job| job.queue("bad"));
    enqueue_all(&mut conn, bad).unwrap();
    enqueue_all(&mut conn, jobs_of("acme", 30)).unwrap();
    let rate = || Rate::per_second(100).key("api");
    let rated = (0..3).map(|_| NewJob::new(&Note::new("rated")).unwrap().rate(rate()));
    enqueue_all(&mut conn, rated).unwrap();
    assert_eq!(worked(db, 33).len(), 33);
}

on_each_database!(
    a_refused_queue_holds_up_no_other,
    an_open_change_holds_up_no_other,
    a_backlog_is_shared,
    waiting_jobs_go_on,
    jobs_that_are_moved,
    tenants_are_listed,
    wrong_names_and_weights_are_refused,
);
