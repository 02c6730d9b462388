//! Queries of the pages of `windlass web`, on connections that prefer indexes.

use crate::db::plans::{Work, job, limited};
use crate::read::sql::keys::KeysWanted;
use crate::db::query::{doctor, load};
use crate::db::table::pauses;
use crate::db::transition::{enqueue, promote};

pub(crate) const PAGES: [(&str, Work); 6] = [
    ("look at the load", |conn, _| {
        load::totals::totals(conn)?;
        load::totals::blocked(conn)?;
        load::totals::estimated_jobs(conn)?;
        load::fleet::oldest(conn, 10)?;
        load::fleet::held_by_process(conn)?;
        load::fleet::processes(conn)?;
        pauses::list_pauses(conn, 10)?;
        pauses::pause_of_queue(conn, "q1")?;
        load::fleet::died(conn).map(drop)
    }),
    ("look at the load of the queues", |conn, _| {
        let many = vec![job(None); 1_100];
        enqueue::insert_all(conn, &many)?;
        assert_eq!(load::queues::ready(conn)?[0].ready.count, 1_103);
        load::queues::scheduled(conn)?;
        load::queues::blocked(conn)?;
        load::queues::claimed(conn)?;
        load::queues::failed(conn).map(drop)
    }),
    ("look at the load of a queue", |conn, _| {
        load::queues::ready_of(conn, "q1")?;
        load::totals::next(conn, "q1", 10)?;
        load::totals::scheduled(conn, "q1")?;
        load::totals::ready_classes(conn, "q1").map(drop)
    }),
    ("look at the keys in use", |conn, _| {
        enqueue::insert_all(conn, &[limited(), limited()])?;
        promote::promote(conn, 10)?;
        for wanted in [KeysWanted::All, KeysWanted::Waiting] {
            let keys = load::keys::page(conn, wanted, "", 10)?;
            assert_eq!((keys[0].ready.count, keys[0].blocked.count), (1, 1));
        }
        load::keys::one(conn, "plan/k")?;
        load::keys::holders(conn, &["plan/k"]).map(drop)
    }),
    ("look at the recurring tasks", |conn, _| {
        load::tasks::page(conn, "", 10)?;
        load::tasks::totals(conn)?;
        load::tasks::overdue(conn, 60, 10)?;
        load::tasks::ticks(conn, &["t1", "t2"], 10).map(drop)
    }),
    ("check the newest rows", |conn, _| {
        for rule in doctor::Rule::ALL {
            assert_eq!(load::totals::inconsistent(conn, rule)?.count, 0);
        }
        Ok(())
    }),
];
