//! Everything about shares of a queue's threads.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::{ClaimQueues, ClaimsAtGate, NextJobs};
use crate::db::model::new_row::NewRow;
use crate::db::plans::{Work, run};
use crate::db::table::wanted_keys::BEGINNING;
use crate::db::table::{rates, shares};
use crate::db::transition::gate::GateWatch;
use crate::db::transition::{enqueue, promote};
use diesel::QueryResult;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) const SHARES: [(&str, Work); 3] = [
    ("let tenants take turns", |conn, _| {
        // The first job is ready before the queue is shared.
        enqueue::insert_job(conn, &of_tenant("early"))?;
        assert!(shares::begin(conn, "fair", true)?);
        let acme = [of_tenant("acme"), of_tenant("acme")];
        let jobs: Vec<i64> = enqueue::insert_all(conn, &acme)?
            .iter()
            .map(|job| job.id)
            .collect();
        enqueue::insert_job(conn, &of_tenant("globex"))?;
        promote_all(conn)?;
        assert!(shares::set_weight(conn, "fair", "acme", Some(3))?);
        shares::due(conn, 10, true)?;
        shares::due(conn, 10, false)?;
        shares::state(conn, "fair")?;
        shares::tenants_of(conn, &jobs)?;
        assert_eq!(shares::list_queues(conn)?.len(), 1);
        assert!(!shares::list_tenants(conn, "fair")?.is_empty());
        assert_eq!(shares::waiting_jobs(conn)?.len(), 1);
        shares::standing_for(conn, 600, 10)?;
        run(
            conn,
            "DELETE FROM solid_queue_ready_executions WHERE queue_name = 'fair'",
        )?;
        promote_all(conn)?;
        assert!(shares::set_weight(conn, "fair", "acme", None)?);
        assert!(shares::begin_end(conn, "fair")?);
        promote_all(conn)?;
        shares::requeue(conn, &jobs, "other")
    }),
    ("start what passes its gates", |conn, rows| {
        assert!(shares::begin(conn, "fair", false)?);
        enqueue::insert_job(conn, &of_tenant("acme"))?;
        let mut watch = GateWatch::of_test();
        watch.claims = Some(ClaimsAtGate {
            process_id: rows.process,
            next: Arc::new(NextJobs {
                queues: ClaimQueues::Named(vec!["fair".to_owned()]),
                classes: vec![of_tenant("acme").class_name],
            }),
            most: 10,
            is_ahead: false,
        });
        let promoted = promote::promote_after(conn, BEGINNING, 10, &mut watch)?;
        assert_eq!(promoted.claimed.len(), 1);
        Ok(())
    }),
    ("count what tenants have used", |conn, _| {
        let key = ("fair".to_owned(), 0, "acme".to_owned());
        shares::store(conn, &[("fair", 0, "acme", 7, 7)])?;
        assert_eq!(shares::used(conn, &BTreeSet::from([&key]))?.len(), 1);
        shares::floors(conn, &BTreeSet::from([("fair".to_owned(), 0)]))?;
        shares::unstarted(conn, &[1, 2])?;
        shares::waiting_among(conn, &[["line"]])?;
        rates::note_passes(conn, &[("line", 7)])?;
        shares::read(conn, &BTreeSet::from(["unknown".to_owned()]))?;
        shares::postpone(conn, "unknown")?;
        shares::forget(conn, &[("fair", 0, i64::MAX)])
    }),
];

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<()> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(())
}

fn of_tenant(tenant: &str) -> NewRow {
    NewRow {
        tenant: Some(tenant.to_owned()),
        ..NewRow::new("plan".into(), "{}".into(), "fair".into(), 0)
    }
}
