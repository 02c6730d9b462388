//! Jobs that pass their gates, and that the process which promotes them claims at once.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::{ClaimQueues, Claimed, ClaimsAtGate, NextJobs};
use crate::db::model::new_row::{NewLimit, NewRow};
use crate::db::table::shares;
use crate::db::table::wanted_keys::BEGINNING;
use crate::db::transition::enqueue;
use crate::db::transition::gate::GateWatch;
use crate::db::transition::promote::{self, Promoted};
use std::sync::Arc;

on_each_database!(
    jobs_that_pass_are_claimed,
    no_more_than_it_starts_at_once,
    jobs_that_it_may_not_run_become_ready,
    a_process_that_is_gone_claims_nothing,
    a_claim_holds_the_slot_of_its_key,
    a_claim_that_the_database_refuses_holds_up_no_other,
);

fn of_tenant(tenant: &str) -> NewRow {
    NewRow {
        tenant: Some(tenant.to_owned()),
        ..row()
    }
}

/// A process, and a shared queue with so many jobs of each of two tenants.
fn shared(conn: &mut Conn<'_>, jobs: usize) -> World {
    let mut world = World::default();
    world.process(conn);
    shares::begin(conn, "default", false).unwrap();
    for tenant in ["acme", "globex"] {
        enqueue::insert_all(conn, &vec![of_tenant(tenant); jobs]).unwrap();
    }
    world
}

fn claims(world: &World, queues: ClaimQueues, most: usize) -> ClaimsAtGate {
    ClaimsAtGate {
        process_id: world.processes[0],
        next: Arc::new(NextJobs {
            queues,
            classes: vec![row().class_name],
        }),
        most,
        is_ahead: true,
    }
}

fn promote_for(conn: &mut Conn<'_>, claims: ClaimsAtGate) -> Promoted {
    let mut watch = GateWatch::of_test();
    watch.claims = Some(claims);
    promote::promote_after(conn, BEGINNING, 100, &mut watch).unwrap()
}

fn count(conn: &mut Conn<'_>, of: &str) -> String {
    texts(
        conn,
        &format!("SELECT CAST(count(*) AS text) AS t FROM {of}"),
    )
    .remove(0)
}

const CLAIMED: &str =
    "solid_queue_claimed_executions WHERE started_at IS NOT NULL AND ready_at IS NOT NULL";

fn jobs_that_pass_are_claimed(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let world = shared(conn, 1);
    let promoted = promote_for(conn, claims(&world, ClaimQueues::All, 10));
    // A queue of which nothing has started lets one through.
    let [first] = &promoted.claimed[..] else {
        panic!("{promoted:?}");
    };
    assert!(
        first.begun && first.has_share && !first.has_rate,
        "{first:?}"
    );
    assert_eq!(first.class_name, row().class_name);
    assert!(promoted.ready.is_empty() && promoted.has_moved());
    assert_eq!(count(conn, CLAIMED), "1");
    assert_eq!(count(conn, "solid_queue_ready_executions"), "0");
    assert_eq!(count(conn, "solid_queue_blocked_executions"), "1");
}

/// The next one is ready, for another process.
fn no_more_than_it_starts_at_once(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let world = shared(conn, 20);
    let mut watch = GateWatch::of_test();
    watch.claims = Some(claims(&world, ClaimQueues::All, 5));
    watch.started.insert("default".to_owned());
    let promoted = promote::promote_after(conn, BEGINNING, 100, &mut watch).unwrap();
    assert_eq!((promoted.claimed.len(), promoted.ready.len()), (5, 1));
    // The next one has no free thread left.
    let promoted = promote::promote_after(conn, BEGINNING, 100, &mut watch).unwrap();
    assert_eq!(promoted.claimed.len(), 0, "{promoted:?}");
    assert_eq!(count(conn, CLAIMED), "5");
}

fn jobs_that_it_may_not_run_become_ready(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let world = shared(conn, 0);
    let once = NewRow {
        at_most_once: true,
        ..of_tenant("acme")
    };
    let unknown = NewRow {
        class_name: "another".to_owned(),
        ..of_tenant("acme")
    };
    let named = |name: &str| ClaimQueues::Named(vec![name.to_owned()]);
    for (row, queues, is_paused) in [
        (&once, ClaimQueues::All, false),
        (&unknown, ClaimQueues::All, false),
        (&of_tenant("acme"), named("mail"), false),
        (&of_tenant("acme"), named("default"), true),
    ] {
        let job = enqueue::insert_job(conn, row).unwrap().id;
        if is_paused {
            execute(
                conn,
                "INSERT INTO solid_queue_pauses (queue_name, created_at) VALUES ('default', '2026-01-01 00:00:00.000000')",
            );
        }
        let promoted = promote_for(conn, claims(&world, queues, 10));
        assert_eq!(
            (promoted.claimed.len(), &promoted.ready[..]),
            (0, &[job][..])
        );
        execute(conn, "DELETE FROM solid_queue_ready_executions");
    }
    assert_eq!(count(conn, "solid_queue_claimed_executions"), "0");
}

fn a_process_that_is_gone_claims_nothing(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    for gone in [
        "UPDATE solid_queue_processes SET draining = true",
        "DELETE FROM solid_queue_processes",
    ] {
        let world = shared(conn, 0);
        execute(conn, gone);
        let job = enqueue::insert_job(conn, &of_tenant("acme")).unwrap().id;
        let promoted = promote_for(conn, claims(&world, ClaimQueues::All, 10));
        assert_eq!(
            (promoted.claimed.len(), &promoted.ready[..]),
            (0, &[job][..])
        );
        execute(conn, "DELETE FROM solid_queue_ready_executions");
    }
}

fn a_claim_holds_the_slot_of_its_key(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let world = shared(conn, 0);
    let limited = NewRow {
        limit: Some(NewLimit {
            key: "key".to_owned(),
            slots: 1,
            discards: false,
            ordered: false,
        }),
        ..of_tenant("acme")
    };
    enqueue::insert_all(conn, &vec![limited; 2]).unwrap();
    let claimed = |promoted: Promoted| promoted.claimed;
    let first: Vec<Claimed> = claimed(promote_for(conn, claims(&world, ClaimQueues::All, 10)));
    assert!(first.len() == 1 && first[0].is_limited, "{first:?}");
    let next = claimed(promote_for(conn, claims(&world, ClaimQueues::All, 10)));
    assert!(next.is_empty(), "{next:?}");
    let held = "SELECT concurrency_key AS t FROM solid_queue_claimed_executions";
    assert_eq!(texts(conn, held), ["key"]);
}

fn a_claim_that_the_database_refuses_holds_up_no_other(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let world = shared(conn, 1);
    let refuse = match db.is_postgres() {
        true => {
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_claimed_executions FOR EACH ROW EXECUTE FUNCTION refuse()"
        }
        false => {
            "CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_claimed_executions \
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
        }
    };
    execute(conn, refuse);
    let promoted = promote_for(conn, claims(&world, ClaimQueues::All, 10));
    assert_eq!((promoted.claimed.len(), promoted.ready.len()), (0, 1));
    assert_eq!(promoted.refused, None);
}
