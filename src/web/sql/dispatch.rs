//! From a request to its response: the route, the viewer, the page, and the page of an error.

use crate::web::access::viewer::{Need, Role, Viewer};
use crate::web::access::{gate, sign_in};
use crate::web::http::request::{Request, Verb};
use crate::web::http::response::Response;
use crate::web::pages::route::{self, Route};
use crate::web::pages::{error, flash};
use crate::web::site::Site;
use crate::web::sql::connections::{Readers, Writers};
use crate::web::sql::cx::Cx;
use crate::web::sql::page_error::PageError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What one thread needs to answer requests; no network.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    pub(crate) site: Arc<Site>,
    pub(crate) routes: &'static [Route],
    pub(crate) readers: Readers,
    pub(crate) writers: Writers,
}

impl Dispatcher {
    pub(crate) fn new(site: &Arc<Site>, routes: &'static [Route]) -> Self {
        Dispatcher {
            site: Arc::clone(site),
            routes,
            readers: Readers::new(site),
            writers: Writers::new(site),
        }
    }

    /// Answers a request. A panic of a page is an internal error.
    pub(crate) fn answer(&mut self, request: &Request) -> Response {
        let answered = catch_unwind(AssertUnwindSafe(|| self.try_answer(request)));
        let answered = answered.unwrap_or_else(|_| {
            let message = format!("a page panicked at {}", request.path);
            (None, Err(PageError::Internal(message)))
        });
        let response = match answered {
            (_, Ok(response)) => response,
            (viewer, Err(error)) => error::page(&self.site, request, viewer.as_ref(), error),
        };
        let response = flash::shown(response, &self.site, request);
        if request.accepts_gzip {
            response.compressed()
        } else {
            response
        }
    }

    fn try_answer(&mut self, request: &Request) -> (Option<Viewer>, Result<Response, PageError>) {
        let site = Arc::clone(&self.site);
        let (readers, writers) = (&mut self.readers, &mut self.writers);
        if request.verb == Verb::Post && request.path == "/login" {
            return (None, sign_in::sign_in(&site, request, writers));
        }
        let found = route::find(self.routes, request.verb, &request.path);
        let is_open = matches!(&found, Ok(found) if found.route.need == Need::Nothing);
        let viewer = match gate::viewer(&site, request, readers, writers) {
            Ok(viewer) => viewer,
            Err(_) if is_open => Viewer::outsider(request.client),
            Err(error) => return (None, Err(error)),
        };
        if request.verb == Verb::Post && request.path == "/logout" {
            let response = sign_in::sign_out(&site, request, &viewer, writers);
            return (Some(viewer), response);
        }
        let found = match found {
            Ok(found) => found,
            Err(error) if viewer.role >= Role::Viewer => return (Some(viewer), Err(error)),
            // What exists is no business of outsiders.
            Err(_) => return (Some(viewer), Err(PageError::SignIn)),
        };
        if !found.route.need.is_met_by(viewer.role) {
            let error = match viewer.role {
                Role::Outsider => PageError::SignIn,
                _ => PageError::Forbidden,
            };
            return (Some(viewer), Err(error));
        }
        let writers = Some(writers).filter(|_| request.verb == Verb::Post);
        let mut cx = Cx::new(&site, request, &viewer, readers, writers)
            .on_route(found.route.is_live, found.params);
        let response = (found.route.handler)(&mut cx);
        (Some(viewer), response)
    }
}
