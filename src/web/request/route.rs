//! A table of routes: a method and a pattern lead to a function.

use crate::web::access::viewer::Need;
use crate::web::http::page_error::PageError;
use crate::web::http::request::{self, Response, Verb};
use crate::web::request::cx::Cx;

/// A page, or a change.
pub(crate) type Handler = fn(&mut Cx<'_>) -> Result<Response, PageError>;

/// An entry of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// `/queues/{name}/pause`: each segment is itself, or a parameter.
    pub(crate) pattern: &'static str,
    pub(crate) handler: Handler,
    pub(crate) need: Need,
    /// Whether its `[data-live]` elements are kept up to date in open pages.
    pub(crate) is_live: bool,
}

impl Route {
    /// A page for viewers and operators.
    pub(crate) const fn get(pattern: &'static str, handler: Handler) -> Self {
        Route {
            verb: Verb::Get,
            pattern,
            handler,
            need: Need::Viewer,
            is_live: false,
        }
    }

    /// A change, for operators only.
    pub(crate) const fn post(pattern: &'static str, handler: Handler) -> Self {
        Route {
            verb: Verb::Post,
            pattern,
            handler,
            need: Need::Operator,
            is_live: false,
        }
    }

    /// The same for others.
    pub(crate) const fn needs(mut self, need: Need) -> Self {
        self.need = need;
        self
    }

    /// The same, kept up to date in open pages.
    pub(crate) const fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// Returns the parameters, if the path fits.
    fn params(&self, path: &str) -> Option<Vec<(&'static str, String)>> {
        let mut params = Vec::new();
        let (mut wanted, mut given) = (self.pattern.split('/'), path.split('/'));
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return Some(params),
                (Some(wanted), Some(given)) => {
                    let name = wanted
                        .strip_prefix('{')
                        .and_then(|name| name.strip_suffix('}'));
                    match name {
                        Some(name) if !given.is_empty() => {
                            params.push((name, request::decoded(given)))
                        }
                        None if wanted == given => {}
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
    }
}

/// A route with the parameters of a path.
#[derive(Debug)]
pub(crate) struct RouteMatch {
    pub(crate) route: Route,
    pub(crate) params: Vec<(&'static str, String)>,
}

/// Finds the route of a path: the first that fits.
///
/// # Errors
/// If none fits.
pub(crate) fn find(routes: &[Route], verb: Verb, path: &str) -> Result<RouteMatch, PageError> {
    let mut fitting = routes
        .iter()
        .filter(|route| route.verb == verb)
        .filter_map(|route| Some((route, route.params(path)?)));
    match fitting.next() {
        Some((route, params)) => Ok(RouteMatch {
            route: *route,
            params,
        }),
        None => Err(PageError::NotFound(
            "There is no page at this address.".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &mut Cx<'_>) -> Result<Response, PageError> {
        Ok(Response::text(""))
    }

    const ROUTES: &[Route] = &[
        Route::get("/", nothing),
        Route::get("/queues/all", nothing),
        Route::get("/queues/{name}", nothing),
        Route::post("/queues/{name}/pause", nothing),
    ];

    #[test]
    fn the_first_route_that_fits_is_found() {
        let pattern =
            |verb, path: &str| find(ROUTES, verb, path).map_or("", |found| found.route.pattern);
        for (path, expected) in [
            ("/", "/"),
            ("/queues/all", "/queues/all"),
            ("/queues/mail", "/queues/{name}"),
            ("/queues/", ""),
            ("/queues/mail/", ""),
            ("/queues/mail/pause", ""),
            ("queues/all", ""),
            ("", ""),
        ] {
            assert_eq!(pattern(Verb::Get, path), expected, "{path}");
        }
        assert_eq!(
            pattern(Verb::Post, "/queues/mail/pause"),
            "/queues/{name}/pause"
        );
        let found = find(ROUTES, Verb::Get, "/queues/a%2Fb%20%C3%A4+").unwrap();
        assert_eq!(found.params, [("name", "a/b ä+".to_owned())]);
    }
}
