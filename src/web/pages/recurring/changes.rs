//! Runs, pauses and resumes recurring tasks.

use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::queues::changes::{actor, back, named};
use crate::web::request::cx::Cx;
use crate::web::show::numbers::count;

/// Enqueues a job of a task at once.
pub(crate) fn run(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (key, actor) = (cx.param("key").to_owned(), actor(cx));
    let job = cx.write(|conn| actor.run_task(conn, &key))?;
    let message = format!("Enqueued job {} of {}.", count(job), named(&key));
    Ok(back(cx, &message))
}

/// Pauses a task.
pub(crate) fn pause(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (key, actor) = (cx.param("key").to_owned(), actor(cx));
    cx.write(|conn| actor.pause_task(conn, &key))?;
    let message = format!(
        "Paused {}. Ticks are skipped until it is resumed.",
        named(&key)
    );
    Ok(back(cx, &message))
}

/// Resumes a task.
pub(crate) fn resume(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (key, actor) = (cx.param("key").to_owned(), actor(cx));
    cx.write(|conn| actor.resume_task(conn, &key))?;
    let message = format!("Resumed {}: it goes on with its next tick.", named(&key));
    Ok(back(cx, &message))
}
