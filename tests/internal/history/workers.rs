//! Folds of a worker between its heartbeats.

use super::{finished, total};
use crate::clock;
use crate::db::DbConnection;
use crate::db::conn::connection::AsConn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::table::history::deltas;
use crate::db::transition::fold::FoldWhen;
use crate::event::logging::Subscriber;
use crate::history::{self, HistoryFilter, TimeRange};
use crate::job::new_job::NewJob;
use crate::process::base::context::ProcessContext;
use crate::process::base::session::Session;
use crate::process::upkeep::Duty as _;
use crate::process::upkeep::fold::Fold;
use std::time::Duration;

on_each_database!(queues_are_not_sampled_after_the_time);

fn has_sample(conn: &mut DbConnection) -> bool {
    let all = HistoryFilter::all();
    let buckets = history::series(conn, &all, TimeRange::Hour).unwrap();
    buckets.iter().any(|bucket| bucket.fleet.is_some())
}

fn queues_are_not_sampled_after_the_time(db: &TestDb) {
    let mut conn = db.connect();
    NewJob::of_class("send", "{}").enqueue(&mut conn).unwrap();
    let context = ProcessContext::open(&db.database, &Subscriber::default()).unwrap();
    let mut session = Session::new(&context);
    for (time, is_sampled) in [(Duration::ZERO, false), (clock::NEVER, true)] {
        deltas::insert_with(&mut conn.as_conn(), &finished("mail", "send", 1)).unwrap();
        let mut fold = Fold::new(FoldWhen::Now, Duration::ZERO, time, &context.stop);
        fold.turn(&mut session).unwrap();
        assert_eq!(super::rows(&mut conn, "windlass_stats_deltas"), 0);
        assert_eq!(has_sample(&mut conn), is_sampled);
    }
    assert_eq!(total(&mut conn).finished, 2);
}
