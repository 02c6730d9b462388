//! Who changes something by a page, for the audit.

use crate::db::model::audit::{Actor, Via};
use crate::web::request::cx::Cx;

/// Returns the viewer as the actor of a change, with a reason if one was given.
pub(crate) fn of(cx: &Cx<'_>, reason: Option<&str>) -> Actor {
    Actor::named(&*cx.viewer.name)
        .via(Via::Page)
        .origin(cx.viewer.client.to_string())
        .reason(reason.unwrap_or_default().trim())
}
