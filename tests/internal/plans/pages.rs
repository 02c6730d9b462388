//! Queries of the pages of `windlass web`, on connections that prefer indexes.

use crate::db::plans::{Work, job, limited};
use crate::db::query::ready;
use crate::db::table::pauses;
use crate::db::transition::{enqueue, promote};
use crate::read::sql::keys::KeysWanted;
use crate::read::sql::{doctor, fleet, keys, queues, tasks, totals};

pub(crate) const PAGES: [(&str, Work); 6] = [
    ("look at the load", |conn, _| {
        totals::totals(conn)?;
        totals::blocked(conn)?;
        totals::estimated_jobs(conn)?;
        fleet::oldest(conn, 10)?;
        fleet::held_by_process(conn)?;
        fleet::processes(conn)?;
        pauses::list_pauses(conn, 10)?;
        pauses::pause_of_queue(conn, "q1")?;
        fleet::died(conn).map(drop)
    }),
    ("look at the load of the queues", |conn, _| {
        let many = vec![job(None); 1_100];
        enqueue::insert_all(conn, &many)?;
        assert_eq!(ready::ready(conn)?[0].ready.count, 1_103);
        queues::scheduled(conn)?;
        queues::blocked(conn)?;
        queues::claimed(conn)?;
        queues::failed(conn).map(drop)
    }),
    ("look at the load of a queue", |conn, _| {
        ready::ready_of(conn, "q1")?;
        totals::next(conn, "q1", 10)?;
        totals::scheduled(conn, "q1")?;
        totals::ready_classes(conn, "q1").map(drop)
    }),
    ("look at the keys in use", |conn, _| {
        enqueue::insert_all(conn, &[limited(), limited()])?;
        promote::promote(conn, 10)?;
        for wanted in [KeysWanted::All, KeysWanted::Waiting] {
            let page = keys::page(conn, wanted, "", 10)?;
            assert_eq!((page[0].ready.count, page[0].blocked.count), (1, 1));
        }
        keys::one(conn, "plan/k")?;
        keys::holders(conn, &["plan/k"]).map(drop)
    }),
    ("look at the recurring tasks", |conn, _| {
        tasks::page(conn, "", 10)?;
        tasks::totals(conn)?;
        tasks::overdue(conn, 60, 10)?;
        tasks::ticks(conn, &["t1", "t2"], 10).map(drop)
    }),
    ("check the newest rows", |conn, _| {
        for rule in doctor::Rule::ALL {
            assert_eq!(totals::inconsistent(conn, rule)?.count, 0);
        }
        Ok(())
    }),
];
