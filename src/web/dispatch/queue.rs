//! From a request to its response: the route, the viewer, the page, and the page of an error.

use crate::clock;
use crate::web::access::viewer::{Need, Proof, Role, Viewer};
use crate::web::api;
use crate::web::dispatch::error;
use crate::web::entry::{gate, sign_in};
use crate::web::http::page_error::PageError;
use crate::web::http::request::{Request, Verb};
use crate::web::http::response::Response;
use crate::web::live::topic::Topic;
use crate::web::reads::connections::{Readers, Writers};
use crate::web::reads::shared::Renewal;
use crate::web::request::cx::Cx;
use crate::web::request::flash;
use crate::web::request::route::{self, Route, RouteMatch};
use crate::web::site::Site;
use axum::body::Bytes;
use crossbeam_channel::Sender;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Pages with one of these in their query have no live updates: one panel alone, and all rows.
const NOT_LIVE: [&str; 2] = ["alone", "full"];

/// What one thread needs to answer requests; no network.
#[derive(Debug)]
pub(crate) struct PageDispatcher {
    pub(crate) site: Arc<Site>,
    pub(crate) routes: &'static [Route],
    pub(crate) readers: Readers,
    pub(crate) writers: Writers,
    /// For what is read anew after the page.
    renewals: Sender<Renewal>,
}

impl PageDispatcher {
    pub(crate) fn new(
        site: &Arc<Site>,
        routes: &'static [Route],
        renewals: Sender<Renewal>,
    ) -> Self {
        PageDispatcher {
            site: Arc::clone(site),
            routes,
            readers: Readers::new(site),
            writers: Writers::new(site),
            renewals,
        }
    }

    /// Answers a request. A panic of a page is an internal error.
    pub(crate) fn answer(&mut self, request: &Request) -> Response {
        let mut viewer = Viewer::outsider(request.client);
        let answered = catch_unwind(AssertUnwindSafe(|| self.try_answer(request, &mut viewer)));
        let answered = answered.unwrap_or_else(|_| Err(PageError::panicked(&request.path)));
        let response =
            answered.unwrap_or_else(|error| error::page(&self.site, request, &viewer, error));
        let response = flash::shown(response, &self.site, request);
        if request.accepts_gzip {
            response.compressed()
        } else {
            response
        }
    }

    fn try_answer(
        &mut self,
        request: &Request,
        viewer: &mut Viewer,
    ) -> Result<Response, PageError> {
        let is_post = request.verb == Verb::Post;
        if is_post && request.path == "/login" {
            return sign_in::sign_in(&self.site, request, &mut self.writers);
        }
        let found = route::find(self.routes, request.verb, &request.path);
        let is_open = matches!(&found, Ok(found) if found.route.need == Need::Nothing);
        match gate::viewer(&self.site, request, &mut self.readers, &mut self.writers) {
            Ok(proven) => *viewer = proven,
            Err(_) if is_open => {}
            Err(error) => return Err(error),
        }
        if is_post && request.path == "/logout" {
            return sign_in::sign_out(&self.site, request, viewer, &mut self.writers);
        }
        // What exists is not for outsiders to find out.
        let is_api = api::is_api(&request.path);
        let found = found.map_err(|error| match viewer.role {
            Role::Enqueuer if is_api => error,
            Role::Outsider | Role::Enqueuer => PageError::SignIn,
            Role::Viewer | Role::Operator => error,
        })?;
        allowed(&found.route, viewer)?;
        // They may do it, once the database can say so again.
        if is_post && viewer.proof == Proof::Recalled {
            return Err(PageError::Away);
        }
        if found.route.need == Need::Enqueuer && self.site.access.settings.read_only {
            return Err(PageError::Refused(
                "This server is read-only, so it enqueues nothing.".to_owned(),
            ));
        }
        // Postgres refuses NUL.
        if found.params.iter().any(|(_, value)| value.contains('\0')) {
            return Err(PageError::NotFound("Nothing has this name.".to_owned()));
        }
        let response = self.handle(request, viewer, found)?;
        Ok(response)
    }

    /// Runs the page of a route.
    fn handle(
        &mut self,
        request: &Request,
        viewer: &Viewer,
        found: RouteMatch,
    ) -> Result<Response, PageError> {
        let changes = request.verb == Verb::Post || found.route.need == Need::Anyone;
        let may_write = changes && viewer.proof != Proof::Recalled;
        let writers = Some(&mut self.writers).filter(|_| may_write);
        let mut cx = Cx::new(&self.site, request, viewer, &mut self.readers, writers)
            .on_route(found.route.is_live, found.params);
        let response = (found.route.handler)(&mut cx);
        for renewal in cx.renewals() {
            if let Err(error) = self.renewals.try_send(renewal) {
                error.into_inner().give_up(&self.site);
            }
        }
        let response = response?;
        // A page whose panels are all missing is of less use than what it showed last.
        if cx.is_away() && request.verb == Verb::Get && found.route.is_live {
            return Err(PageError::Away);
        }
        if found.route.is_live && response.status == 200 {
            let topic = topic(request, viewer.role);
            if let Ok(html) = std::str::from_utf8(&response.body) {
                self.site.seen.keep(&topic, html, clock::instant());
            }
        }
        Ok(response)
    }

    /// Renders a page that viewers have open.
    ///
    /// # Errors
    /// If it cannot be rendered now.
    pub(crate) fn render(&mut self, topic: &Topic) -> Result<String, PageError> {
        let request = Request {
            database: topic.database,
            ..Request::get(&topic.address)
        };
        let viewer = Viewer {
            name: "live".to_owned(),
            role: topic.role,
            client: request.client,
            proof: Proof::Recalled,
            limits: None,
        };
        let found = route::find(self.routes, Verb::Get, &request.path)?;
        let handled = catch_unwind(AssertUnwindSafe(|| self.handle(&request, &viewer, found)));
        let response = handled.unwrap_or_else(|_| Err(PageError::panicked(&request.path)))?;
        String::from_utf8(response.body)
            .map_err(|_| PageError::Internal("a page is not UTF-8".to_owned()))
    }

    /// Opens the live updates of a page, if the request asks for some that the viewer may see.
    pub(crate) fn open_page(&mut self, request: &Request) -> Option<mpsc::Receiver<Bytes>> {
        if (request.verb, request.path.as_str()) != (Verb::Get, "/live") {
            return None;
        }
        let page = Request {
            database: request.database,
            ..Request::get(request.query.get("path")?)
        };
        // What takes long is not read again and again.
        if NOT_LIVE.iter().any(|name| page.query.has(name)) {
            return None;
        }
        let found = route::find(self.routes, Verb::Get, &page.path).ok()?;
        let viewer =
            gate::viewer(&self.site, request, &mut self.readers, &mut self.writers).ok()?;
        allowed(&found.route, &viewer).ok()?;
        let topic = topic(&page, viewer.role);
        let is_live = found.route.is_live;
        is_live.then(|| self.site.hub.open(topic, viewer.proof))?
    }
}

fn topic(request: &Request, role: Role) -> Topic {
    Topic {
        database: request.database,
        address: request.address(),
        role,
    }
}

/// Checks that the viewer may use a route.
fn allowed(route: &Route, viewer: &Viewer) -> Result<(), PageError> {
    match viewer.role {
        role if route.need.is_met_by(role) => Ok(()),
        Role::Outsider => Err(PageError::SignIn),
        Role::Viewer if route.need == Need::Enqueuer => Err(PageError::Refused(
            "A viewer cannot enqueue, and nothing can while the server is read-only. It takes a token of the \
             role enqueuer or operator."
                .to_owned(),
        )),
        _ => Err(PageError::Forbidden),
    }
}
