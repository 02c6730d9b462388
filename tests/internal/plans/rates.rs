//! Everything about rates of starts.

use crate::db::conn::connection::Conn;
use crate::db::model::new_row::{NewLimit, NewRow};
use crate::db::model::rate::{NewRate, RatePace, SetPace};
use crate::db::plans::{Work, run};
use crate::db::table::rates;
use crate::db::table::run_time::limits::NewRunTimeLimit;
use crate::db::transition::gate;
use crate::db::transition::{enqueue, pause, promote};
use diesel::QueryResult;
use std::time::Duration;

pub(crate) const RATES: [(&str, Work); 4] = [
    ("let jobs with rates through", |conn, _| {
        let job = enqueue::insert_job(conn, &rated(&["api"], None))?.id;
        enqueue::insert_all(
            conn,
            &[rated(&["api", "day"], None), rated(&["api"], Some(false))],
        )?;
        enqueue::insert_job(conn, &rated(&["api"], Some(true)))?;
        promote_all(conn)?;
        rates::count_soon(conn)?;
        promote_all(conn)?;
        // A token is there, and the lines go on.
        rates::travel(conn, 2_000_000)?;
        promote_all(conn)?;
        rates::travel(conn, 2_000_000)?;
        rates::next_due(conn)?;
        promote_all(conn)?;
        // All have started, and the rate is forgotten.
        run(
            conn,
            "DELETE FROM solid_queue_ready_executions WHERE job_id IN (SELECT id FROM solid_queue_jobs WHERE rates IS NOT NULL)",
        )?;
        run(
            conn,
            "DELETE FROM solid_queue_blocked_executions WHERE gate IS NOT NULL",
        )?;
        for _ in 0..2 {
            rates::travel(conn, 100_000_000)?;
            promote_all(conn)?;
        }
        rates::place(conn, job, 10)?;
        rates::due_in(conn, "api")?;
        Ok(())
    }),
    ("close a rate", |conn, _| {
        let job = enqueue::insert_job(conn, &rated(&["other"], None))?.id;
        let rate = rates::of_job(conn, job)?.remove(0);
        rates::close(conn, &rate.key, rate.pace, Duration::from_secs(1))?;
        rates::postpone(conn)?;
        rates::note_step(conn, 0, 0)
    }),
    ("set a rate", |conn, _| {
        let job = enqueue::insert_job(conn, &rated(&["set/1"], None))?.id;
        enqueue::insert_job(conn, &rated(&["set/1"], None))?;
        promote_all(conn)?;
        let rate = SetPace {
            number: 2,
            period: 1_000_000,
            burst: None,
        };
        let new = NewRunTimeLimit {
            slots: None,
            rate: Some(rate),
        };
        pause::set(conn, "set/*", new, None, None)?;
        let found = pause::rates_of(conn, "set/*", "")?;
        assert_eq!(found.keys.len(), 1);
        assert!(pause::look_at_rates(conn, found.keys)?.is_empty());
        promote_all(conn)?;
        rates::close(conn, "set/1", RatePace::LOOSE, Duration::from_secs(1))?;
        assert!(rates::closed_for(conn, "set/1")?.is_some());
        assert!(pause::reopen(conn, "set/1")?);
        assert!(
            rates::keys_in_use(conn, "", 10)?
                .iter()
                .any(|key| key.waiting == 1)
        );
        rates::never_met(conn)?;
        rates::groups(conn)?;
        rates::of_job(conn, job).map(drop)
    }),
    ("look for jobs that wait for a rate", |conn, _| {
        enqueue::insert_job(conn, &rated(&["swept"], None))?;
        run(conn, "DELETE FROM windlass_wanted_keys")?;
        gate::sweep(conn, "", 10)?;
        rates::lines_at_limits(conn, None, "", 10)?;
        pause::request_group(conn, "k/*")
    }),
];

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<()> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(())
}

/// A job with rates, and a concurrency key that may be ordered.
fn rated(keys: &[&str], ordered: Option<bool>) -> NewRow {
    let rate = |key: &&str| NewRate {
        key: (*key).to_owned(),
        pace: RatePace {
            number: 1,
            period: 1_000_000,
            burst: 1,
        },
        cost: 1,
    };
    NewRow {
        rates: keys.iter().map(rate).collect(),
        limit: ordered.map(|ordered| NewLimit {
            key: "k/1".to_owned(),
            slots: 1,
            discards: false,
            ordered,
        }),
        ..NewRow::new("plan".into(), "{}".into(), "q1".into(), 0)
    }
}
