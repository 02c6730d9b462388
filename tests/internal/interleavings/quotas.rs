//! Enqueues of a quota whose places are not counted yet.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::new_row::{NewQuota, NewRow, Per, QuotaLimits};
use crate::db::table::quotas::{self, QuotaSlots};
use crate::db::transition::enqueue::admit;
use diesel::QueryResult;

fn uncounted(conn: &mut Conn<'_>) -> World {
    execute(conn, "DELETE FROM windlass_quota_slots");
    World::default()
}

const LIMIT: i64 = 2;

fn quota() -> NewQuota {
    NewQuota {
        name: "mails".to_owned(),
        limits: QuotaLimits {
            per_day: Some(LIMIT),
            ..QuotaLimits::default()
        },
    }
}

/// Enqueues a job of a quota that has room for it.
fn enqueue(conn: &mut Conn<'_>) -> QueryResult<String> {
    let row = NewRow {
        quota: Some(quota()),
        ..row()
    };
    match admit::insert_all(conn, &[row]) {
        Ok(_) => Ok("done".to_owned()),
        Err(admit::NotEnqueued::Failed(error)) => Err(error),
        Err(_) => Ok("refused".to_owned()),
    }
}

/// Creates the rows of the quota, as another first enqueue does.
fn create(conn: &mut Conn<'_>) -> QueryResult<String> {
    let quota = &quota();
    let places = QuotaSlots {
        quota,
        per: Per::Day,
        limit: LIMIT,
    };
    quotas::create(conn, places)?;
    Ok("done".to_owned())
}

/// It may find no places, and then see those that the other has created meanwhile.
fn a_first_enqueue_and_another(db: &TestDb) {
    Play::new(db, uncounted)
        .actor("enqueue", |c, _| enqueue(c))
        .actor("create", |c, _| create(c))
        .ends_in(&["enqueue done, create done -> new ready; "]);
}

on_each_database!(a_first_enqueue_and_another);
