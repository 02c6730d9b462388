//! Pauses and resumes queues and classes.

use crate::db::model::audit::{Actor, Via};
use crate::db::query::named as known;
use crate::error::Doing as _;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::request::cx::Cx;

/// Returns the viewer as the actor of a change, with the reason of the form.
pub(crate) fn actor(cx: &Cx<'_>) -> Actor {
    let reason = cx.form().get("reason").unwrap_or_default().trim();
    Actor::named(cx.viewer.name.as_str())
        .via(Via::Page)
        .origin(cx.viewer.client.to_string())
        .reason(reason)
}

/// Returns to the page that a form names, which then shows the message.
pub(crate) fn back(cx: &Cx<'_>, message: &str) -> Response {
    cx.done(cx.form().get("back").unwrap_or("/"), message)
}

/// Returns a name as a message shows it.
pub(crate) fn named(name: &str) -> String {
    const LONGEST: usize = 80;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Pauses a queue.
pub(crate) fn pause(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (queue, actor) = (cx.param("name").to_owned(), actor(cx));
    let paused = cx.write(|conn| actor.pause_queue(conn, &queue))?;
    let name = named(&queue);
    let message = match paused {
        true => format!("Paused {name}. Workers take no more of its jobs; those that run go on."),
        false => format!("{name} was paused already."),
    };
    Ok(back(cx, &message))
}

/// Resumes a queue.
pub(crate) fn resume(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (queue, actor) = (cx.param("name").to_owned(), actor(cx));
    let resumed = cx.write(|conn| actor.resume_queue(conn, &queue))?;
    let name = named(&queue);
    let message = match resumed {
        true => format!("Resumed {name}."),
        false => format!("{name} was not paused."),
    };
    Ok(back(cx, &message))
}

/// Pauses the class that a form names.
pub(crate) fn pause_class(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let class = cx.form().get("class").unwrap_or_default().trim().to_owned();
    if class.is_empty() || class.contains('\0') {
        let message = "Name the class to pause, as it is registered: `send_invoice`.";
        return Err(PageError::Invalid(message.to_owned()));
    }
    let found = cx.read(|conn| known::named(conn, &class).doing("look for the class"))?;
    if !found.is_class {
        return Err(PageError::Invalid(format!(
            "No worker has registered a class {}, and none of the newest 10,000 jobs has it. \
             `windlass classes pause` pauses a class before its first job.",
            named(&class)
        )));
    }
    let actor = actor(cx);
    let paused = cx.write(|conn| actor.pause_class(conn, &class))?;
    let name = named(&class);
    let message = match paused {
        true => {
            format!("Paused the class {name}. Within a second, workers start none of its jobs.")
        }
        false => format!("The class {name} was paused already."),
    };
    Ok(back(cx, &message))
}

/// Resumes a class.
pub(crate) fn resume_class(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (class, actor) = (cx.param("name").to_owned(), actor(cx));
    let resumed = cx.write(|conn| actor.resume_class(conn, &class))?;
    let name = named(&class);
    let message = match resumed {
        true => format!("Resumed the class {name}."),
        false => format!("The class {name} was not paused."),
    };
    Ok(back(cx, &message))
}
