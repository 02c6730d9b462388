//! The pages to request: all of the server's own table.

use crate::error::{Error, Result};
use crate::laboratory::filled::sizes::{self, CLASSES, FLOWS, QUEUES, Sizes};
use crate::web::dispatch::routes::ROUTES;
use crate::web::http::Verb;
use crate::web::request::route::Route;

/// A page with the addresses that are requested in turn.
#[derive(Debug, Clone)]
pub(crate) struct BenchPage {
    pub(crate) name: String,
    pub(crate) paths: Vec<String>,
}

/// The number of values of a parameter that are requested in turn.
const VALUES: i64 = 50;

/// Returns all pages, and what is requested of them beside the page itself.
///
/// # Errors
/// If a page has a parameter of which nothing is known here.
pub(crate) fn pages(sizes: Sizes) -> Result<Vec<BenchPage>> {
    let mut pages = Vec::new();
    let is_page = |route: &&Route| route.verb == Verb::Get && !route.pattern.starts_with("/v1/");
    for route in ROUTES.iter().filter(is_page) {
        let paths = paths(route.pattern, sizes)?;
        let of_query = |query: &&str| BenchPage {
            name: format!("{}{query}", route.pattern),
            paths: paths.iter().map(|path| format!("{path}{query}")).collect(),
        };
        pages.extend(queries(route.pattern).iter().map(of_query));
    }
    Ok(pages)
}

/// Returns what follows the path of a page, each of which is measured as a page of its own.
fn queries(pattern: &str) -> &'static [&'static str] {
    match pattern {
        "/jobs" => &[
            "",
            "?state=ready",
            "?state=failed&class=class_7",
            "?state=finished&queue=queue_3",
            "?queue=queue_3&class=class_3",
            "?state=failed&error=refused",
            "?tag=eu",
            "?args=customer",
        ],
        "/preview" => &[
            "?do=retry&which=matching&state=failed",
            "?do=discard&which=matching&state=ready&queue=queue_3",
        ],
        _ => &[""],
    }
}

/// Returns the addresses of a pattern.
fn paths(pattern: &str, sizes: Sizes) -> Result<Vec<String>> {
    let mut paths = vec![String::new()];
    for segment in pattern.split('/').skip(1) {
        let name = segment
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        let values = match name {
            Some(name) => values(pattern, name, sizes)?,
            None => vec![segment.to_owned()],
        };
        paths = paths
            .iter()
            .flat_map(|path| values.iter().map(move |value| format!("{path}/{value}")))
            .collect();
    }
    Ok(paths)
}

/// Returns values of a parameter of a page.
fn values(pattern: &str, name: &str, sizes: Sizes) -> Result<Vec<String>> {
    let numbers = 0..VALUES;
    Ok(match (pattern.split('/').nth(1), name) {
        (Some("jobs"), "id") => numbers
            .map(|number| job(number, sizes).to_string())
            .collect(),
        (Some("queues"), _) => (0..QUEUES).map(sizes::queue).collect(),
        (Some("classes"), _) => (0..CLASSES.min(VALUES)).map(sizes::class_name).collect(),
        (Some("operations"), "id") => numbers
            .map(|number| (number * 17 + 1).to_string())
            .collect(),
        (Some("batches"), "id") => (1..=FLOWS).map(|id| id.to_string()).collect(),
        (Some("recurring"), _) => numbers.map(|number| format!("task-{number}")).collect(),
        _ => {
            return Err(Error::Settings(format!(
                "the laboratory has no value for {{{name}}} of the page {pattern}"
            )));
        }
    })
}

/// Returns jobs of every state in turn.
fn job(number: i64, sizes: Sizes) -> i64 {
    let part = number * 7 + 3;
    let live = sizes.ended() + sizes.claimed();
    match number % 5 {
        0 => sizes.ended() * part / (VALUES * 7 + 3),
        1 | 2 => sizes.failed_id(sizes.failed() * part / (VALUES * 7 + 3)),
        3 => sizes.ended() + 1 + part % sizes.claimed(),
        _ => live + 1 + i64::from(sizes.ready) * part / (VALUES * 7 + 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_addresses() {
        let sizes = Sizes {
            finished: 1_000,
            ready: 100,
            failed: 100,
        };
        let pages = pages(sizes).unwrap();
        let of_batches = pages.iter().find(|page| page.name == "/batches/{id}/flow");
        assert_eq!(of_batches.unwrap().paths.len(), 50);
        assert!(pages.iter().all(|page| !page.paths.is_empty()));
    }
}
