//! Sets and clears limits.

use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::queues::changes::{actor, back, named};
use crate::web::request::cx::Cx;

/// Sets the limit of the key that a form names.
pub(crate) fn set(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let key = cx.form().get("key").unwrap_or_default().trim().to_owned();
    let slots = cx
        .form()
        .number("slots")
        .and_then(|slots| u32::try_from(slots).ok());
    let Some(slots) = slots else {
        let message = "The number of slots is a whole number from 0 on.";
        return Err(PageError::Invalid(message.to_owned()));
    };
    let actor = actor(cx);
    cx.write(|conn| actor.set_limit(conn, &key, slots))?;
    let jobs = if slots == 1 { "job" } else { "jobs" };
    let message = format!("The limit of {} is {slots} {jobs} at once.", named(&key));
    Ok(back(cx, &message))
}

/// Clears the limit of the key that a form names.
pub(crate) fn clear(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let key = cx.form().get("key").unwrap_or_default().to_owned();
    let actor = actor(cx);
    let cleared = cx.write(|conn| actor.clear_limit(conn, &key))?;
    let name = named(&key);
    let message = match cleared {
        true => format!("Cleared the limit of {name}: the limits of its jobs count again."),
        false => format!("{name} had no limit that was set."),
    };
    Ok(back(cx, &message))
}
