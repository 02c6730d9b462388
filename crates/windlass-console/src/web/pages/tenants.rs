//! The shared queues and their tenants, on the page of the limits.

use crate::web::http::{PageError, Response};
use crate::web::pages::queues::{actor, back, named};
use crate::web::request::route::Cx;
use crate::web::show;
use windlass::internal::db::query::ready::CappedCount;
use windlass::tenants::{self, ShareBy, TenantStatus};
use windlass::{Conn, Result as WindlassResult};

/// A shared queue in the table.
#[derive(Debug)]
pub(crate) struct FairQueueLine {
    pub(crate) queue: String,
    pub(crate) by: &'static str,
    pub(crate) lines: CappedCount,
    /// The address that shows its tenants.
    pub(crate) address: String,
}

/// A tenant in the table.
#[derive(Debug)]
pub(crate) struct TenantLine {
    pub(crate) tenant: String,
    pub(crate) weight: i64,
    pub(crate) waiting: CappedCount,
    pub(crate) running: i64,
    pub(crate) share: String,
}

/// The shared queues, and the tenants of one.
#[derive(Debug)]
pub(crate) struct TenantLines {
    pub(crate) queues: Vec<FairQueueLine>,
    /// The queue that the address names, or the only one.
    pub(crate) queue: Option<String>,
    pub(crate) tenants: Vec<TenantLine>,
}

/// The most lines of a queue, or jobs of a line, that are counted.
const MOST: i64 = 1_000;

/// Reads the shared queues, and the tenants of the one with this name.
pub(crate) fn read(conn: &mut Conn<'_>, queue: Option<&str>) -> WindlassResult<TenantLines> {
    let queues = tenants::queues(conn)?;
    let only = queues.first().filter(|_| queues.len() == 1);
    let queue = queue.map(str::to_owned);
    let queue = queue.or_else(|| only.map(|only| only.queue.clone()));
    let tenants = match &queue {
        Some(queue) => tenants::list(conn, queue)?,
        None => Vec::new(),
    };
    let queues = queues.into_iter().map(|queue| FairQueueLine {
        by: measure(queue.by),
        // One more may wait than is counted.
        lines: CappedCount::part(queue.waiting, queue.waiting >= MOST),
        address: crate::web::http::with_query("/limits", &[("queue", &queue.queue)]),
        queue: queue.queue,
    });
    Ok(TenantLines {
        queues: queues.collect(),
        queue,
        tenants: tenants.into_iter().map(line).collect(),
    })
}

fn line(status: TenantStatus) -> TenantLine {
    TenantLine {
        tenant: status.tenant,
        weight: status.weight,
        waiting: CappedCount::part(status.waiting, status.waiting >= MOST),
        running: status.running,
        share: format!("{:.1} %", status.share * 100.0),
    }
}

fn measure(by: ShareBy) -> &'static str {
    match by {
        ShareBy::Jobs => "jobs",
        ShareBy::Time => "time",
    }
}

fn field(cx: &Cx<'_>, name: &str) -> String {
    cx.form().get(name).unwrap_or_default().trim().to_owned()
}

/// Shares the threads of the queue that a form names.
pub(crate) fn share(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (queue, actor) = (field(cx, "queue"), actor(cx));
    let by = match cx.form().get("by") {
        Some("time") => ShareBy::Time,
        _ => ShareBy::Jobs,
    };
    cx.write(|conn| actor.share_queue(conn, &queue, by))?;
    let message = format!("{} is shared by {}.", named(&queue), measure(by));
    Ok(back(cx, &message))
}

/// Shares the threads of the queue that a form names no more.
pub(crate) fn unshare(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let queue = cx.form().get("queue").unwrap_or_default().to_owned();
    let (actor, name) = (actor(cx), named(&queue));
    let message = match cx.write(|conn| actor.unshare_queue(conn, &queue))? {
        true => format!("{name} is shared no more."),
        false => format!("{name} was not shared."),
    };
    Ok(back(cx, &message))
}

/// Sets the weight that a form names.
pub(crate) fn weigh(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (queue, tenant) = (field(cx, "queue"), field(cx, "tenant"));
    let weight = field(cx, "weight").parse::<u32>();
    let weight = weight.map_err(|_| {
        PageError::Invalid("The weight is a whole number from 1 to 1000.".to_owned())
    })?;
    let actor = actor(cx);
    cx.write(|conn| actor.set_weight(conn, &queue, &tenant, weight))?;
    let (tenant, queue) = (named(&tenant), named(&queue));
    let weight = show::count(weight);
    Ok(back(
        cx,
        &format!("The weight of {tenant} in {queue} is {weight}."),
    ))
}
