//! Queues whose threads are shared between tenants, set by operators while the programs run.

use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::shares::{self, FairQueue, ShareBy, TenantStatus};
use crate::db::transition::audit::AuditTrail;
use crate::db::{AsConn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::new_job::check_tenant;
use crate::queue::check_name;
use serde_json::json;

/// Shares the threads of a queue between tenants from now on: however many jobs one of them has enqueued, the next job of
/// another has its turn soon.
///
/// It is about jobs with a [tenant](crate::NewJob::tenant): those that are enqueued from now on, and those that are ready. Of
/// the jobs of the most important priority, the next is one of the tenant that has used least; a tenant alone has all threads.
/// A job without a tenant waits for no turn. A worker needs no restart.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::tenants::{self, ShareBy};
///
/// tenants::share(&mut conn, "mail", ShareBy::Time)?;
/// assert_eq!(tenants::queues(&mut conn)?[0].by, ShareBy::Time);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the name of the queue is invalid, or if the database does not answer or has no tables.
pub fn share<C: AsConn + ?Sized>(conn: &mut C, queue: &str, by: ShareBy) -> Result<()> {
    Actor::default().share_queue(conn, queue, by)
}

/// Shares the threads of a queue no more. Jobs that wait for their turn go on. Returns `false` if they are not shared.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::tenants::{self, ShareBy};
///
/// tenants::share(&mut conn, "mail", ShareBy::Jobs)?;
/// assert!(tenants::unshare(&mut conn, "mail")?);
/// assert!(!tenants::unshare(&mut conn, "mail")?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn unshare<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<bool> {
    Actor::default().unshare_queue(conn, queue)
}

/// Sets the weight of a tenant in a queue, from 1 to 1,000: with 3 it gets three times as much as one with 1, the default.
///
/// It counts from the next turn on, and stays until it is set to 1, also while the queue is not shared. Returns `false` if it
/// was the same before.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// assert!(windlass::tenants::set_weight(&mut conn, "mail", "acme", 3)?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the weight is 0 or more than 1,000, if a name is invalid, or if the database does not answer or has no tables.
pub fn set_weight<C: AsConn + ?Sized>(
    conn: &mut C,
    queue: &str,
    tenant: &str,
    weight: u32,
) -> Result<bool> {
    Actor::default().set_weight(conn, queue, tenant, weight)
}

/// Returns the queues whose threads are shared, by name.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for queue in windlass::tenants::queues(&mut conn)? {
///     println!("{}: by {:?}, {} lines wait", queue.queue, queue.by, queue.waiting);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn queues<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<FairQueue>> {
    shares::list_queues(&mut own(conn)).during("read the shared queues")
}

/// Returns up to 100 tenants of a queue: those that have used most lately, that come next, that have running jobs, or that have
/// a weight. Those with the largest share come first.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// for tenant in windlass::tenants::list(&mut conn, "mail")? {
///     println!("{}: {:.0} %, {} wait", tenant.tenant, tenant.share * 100.0, tenant.waiting);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn list<C: AsConn + ?Sized>(conn: &mut C, queue: &str) -> Result<Vec<TenantStatus>> {
    let queue = queue.replace('\0', "");
    shares::list_tenants(&mut own(conn), &queue).during("read the tenants")
}

impl Actor {
    /// Does what [`tenants::share`](crate::tenants::share) does.
    ///
    /// # Errors
    /// As for [`tenants::share`](crate::tenants::share).
    pub fn share_queue<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        queue: &str,
        by: ShareBy,
    ) -> Result<()> {
        check_name(queue, "queue name")?;
        let shared = AuditTrail::new(self, AuditAction::ShareQueue)
            .target(queue)
            .parameters(json!({ "by": by }).to_string())
            .record_if(&mut own(conn), |conn| {
                shares::begin(conn, queue, by == ShareBy::Time)
            });
        shared.map(drop).during("share the queue")
    }

    /// Does what [`tenants::unshare`](crate::tenants::unshare) does.
    ///
    /// # Errors
    /// As for [`tenants::unshare`](crate::tenants::unshare).
    pub fn unshare_queue<C: AsConn + ?Sized>(&self, conn: &mut C, queue: &str) -> Result<bool> {
        let queue = queue.replace('\0', "");
        AuditTrail::new(self, AuditAction::UnshareQueue)
            .target(&*queue)
            .record_if(&mut own(conn), |conn| shares::begin_end(conn, &queue))
            .during("share the queue no more")
    }

    /// Does what [`tenants::set_weight`](crate::tenants::set_weight) does.
    ///
    /// # Errors
    /// As for [`tenants::set_weight`](crate::tenants::set_weight).
    pub fn set_weight<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        queue: &str,
        tenant: &str,
        weight: u32,
    ) -> Result<bool> {
        check_name(queue, "queue name")?;
        let stored = check_weight(tenant, weight)?;
        AuditTrail::new(self, AuditAction::SetWeight)
            .target(queue)
            .parameters(json!({ "tenant": tenant, "weight": weight }).to_string())
            .record_if(&mut own(conn), |conn| {
                shares::set_weight(
                    conn,
                    queue,
                    tenant,
                    Some(stored).filter(|weight| *weight > 1),
                )
            })
            .during("set the weight")
    }
}

/// The largest weight.
const MOST: i32 = 1_000;

/// Checks a weight. Returns it as it is stored.
pub fn check_weight(tenant: &str, weight: u32) -> Result<i32> {
    check_tenant(tenant)
        .map_err(|why| Error::Settings(format!("cannot set the weight: its {why}")))?;
    let stored = i32::try_from(weight).ok();
    let stored = stored.filter(|weight| (1..=MOST).contains(weight));
    stored.ok_or_else(|| {
        Error::Settings(format!(
            "cannot set the weight of `{tenant}` to {weight}: it must be from 1 to {MOST}"
        ))
    })
}
