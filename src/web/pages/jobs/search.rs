//! The search box: goes to what a text names.

use crate::db::Conn;
use crate::db::query::named::{self, NamedThings};
use crate::error::{Doing as _, Result};
use crate::web::http::link;
use crate::web::http::page_error::PageError;
use crate::web::http::response::Response;
use crate::web::pages::jobs::filters::only;
use crate::web::request::cx::Cx;

/// Goes to a job with this id, unique id or idempotency key, or else to a class, a queue or a
/// recurring task of this name, or else to the jobs whose arguments contain the text.
pub(crate) fn go(cx: &mut Cx<'_>, text: &str) -> Result<Response, PageError> {
    let text = text.trim();
    let to = if text.is_empty() {
        "/jobs".to_owned()
    } else {
        cx.read(|conn| path(conn, text))?
    };
    Ok(Response::see_other(cx.link(&to)))
}

fn path(conn: &mut Conn<'_>, text: &str) -> Result<String> {
    let doing = "search for the text";
    let job = |id: i64| link::path(&["jobs", &id.to_string()]);
    if let Some(id) = number(text)
        && named::is_job(conn, id).doing(doing)?
    {
        return Ok(job(id));
    }
    let NamedThings {
        of_unique_id,
        of_idempotency_key,
        is_class,
        is_queue,
        is_task,
    } = named::named(conn, text).doing(doing)?;
    Ok(match of_unique_id.or(of_idempotency_key) {
        Some(id) => job(id),
        None if is_class => only("class", text),
        None if is_queue => link::path(&["queues", text]),
        None if is_task => link::with_query("/recurring", &[("key", text)]),
        None => only("args", text),
    })
}

/// Reads the id of a job as pages show it, `48,213,716`, or as logs do.
fn number(text: &str) -> Option<i64> {
    let text = text.trim_start_matches('#');
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_number = digits > 0
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b',');
    let text = text.replace(',', "");
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_shown() {
        for (text, id) in [
            ("48,213,716", Some(48_213_716)),
            ("#7", Some(7)),
            ("007", Some(7)),
            ("-7", None),
            ("7a", None),
            (",", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(number(text), id, "{text}");
        }
    }
}
