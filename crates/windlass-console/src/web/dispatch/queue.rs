//! From a request to its response: the route, the viewer, the page, and the page of an error.

use crate::web::access::viewer::{Need, Proof, Role, Viewer};
use crate::web::http::{PageError, Request, Response, Verb};
use crate::web::live::Topic;
use crate::web::pages::login;
use crate::web::reads::{Readers, Renewal, Writers};
use crate::web::request::route::{self, Cx, Route, RouteMatch};
use crate::web::request::shell::{self, Shell};
use crate::web::show::{Markup, filters};
use crate::web::site::{Section, Site};
use crate::web::{api, entry};
use askama::Template;
use axum::body::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use windlass::Result;
use windlass::internal::clock;
use windlass::internal::process::base::stop;

/// Pages with one of these in their query have no live updates: one panel alone, and all rows.
const NOT_LIVE: [&str; 2] = ["alone", "full"];

/// The state of a thread that answers requests. It does not use the network.
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
        let response = answered.unwrap_or_else(|error| page(&self.site, request, &viewer, error));
        let response = shell::shown(response, &self.site, request);
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
            return entry::sign_in(&self.site, request, &mut self.writers);
        }
        let found = route::find(self.routes, request.verb, &request.path);
        let is_open = matches!(&found, Ok(found) if found.route.need == Need::Nothing);
        match entry::viewer(&self.site, request, &mut self.readers, &mut self.writers) {
            Ok(proven) => *viewer = proven,
            Err(_) if is_open => {}
            Err(error) => return Err(error),
        }
        if is_post && request.path == "/logout" {
            return entry::sign_out(&self.site, request, viewer, &mut self.writers);
        }
        // The response does not show an outsider which pages exist.
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
                self.site.pages.put(&topic, html, clock::instant());
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
        // A page that takes long is not read again and again.
        if NOT_LIVE.iter().any(|name| page.query.has(name)) {
            return None;
        }
        let found = route::find(self.routes, Verb::Get, &page.path).ok()?;
        let viewer =
            entry::viewer(&self.site, request, &mut self.readers, &mut self.writers).ok()?;
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

// --- The threads, and the queue before them ---

/// The most requests that wait; more are refused at once.
pub(crate) const QUEUE: usize = 64;

/// The longest wait of a request for a thread.
pub(crate) const QUEUED: Duration = Duration::from_secs(5);

/// A request for the threads.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) request: Request,
    pub(crate) queued_at: Instant,
    pub(crate) reply: oneshot::Sender<RequestAnswer>,
}

/// The answer to a request: a response, or live updates.
#[derive(Debug)]
pub(crate) enum RequestAnswer {
    Response(Response),
    /// The messages of live updates, for as long as the page is open.
    Live(mpsc::Receiver<Bytes>),
}

/// Starts the threads. They end when all senders are dropped.
pub(crate) fn start(
    site: &Arc<Site>,
    routes: &'static [Route],
    count: usize,
    renewals: &Sender<Renewal>,
) -> Result<(Sender<Work>, Vec<JoinHandle<()>>)> {
    let (sender, queue) = bounded(QUEUE);
    let mut handles = Vec::new();
    for _ in 0..count.max(1) {
        let dispatcher = PageDispatcher::new(site, routes, renewals.clone());
        let queue = queue.clone();
        handles.push(stop::spawn("web-sql", move || work(dispatcher, &queue))?);
    }
    Ok((sender, handles))
}

fn work(mut dispatcher: PageDispatcher, queue: &Receiver<Work>) {
    while let Ok(work) = queue.recv() {
        let waited = clock::instant().saturating_duration_since(work.queued_at);
        // The client has gone, or was refused already.
        if work.reply.is_closed() || waited > QUEUED {
            continue;
        }
        let answer = match dispatcher.open_page(&work.request) {
            Some(messages) => RequestAnswer::Live(messages),
            None => RequestAnswer::Response(dispatcher.answer(&work.request)),
        };
        let _ = work.reply.send(answer);
    }
}

// --- The pages of errors ---

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    shell: Shell,
    heading: &'static str,
    text: String,
    advice: &'static str,
    request: String,
    seen: Option<CachedContent>,
    /// True if the page is requested again automatically.
    is_away: bool,
}

/// The last content of the page before the database was away, and its age.
struct CachedContent {
    content: Markup,
    seconds: f64,
}

/// Returns the page of an error, as plain text for programs.
pub(crate) fn page(site: &Site, request: &Request, viewer: &Viewer, error: PageError) -> Response {
    if let PageError::Internal(reason) = &error {
        let id = &request.id;
        log::error!("web: request {id}: {reason}");
    }
    let seen = match error {
        PageError::Away => cached_content(site, request, viewer),
        _ => None,
    };
    let asks_to_sign_in = matches!(error, PageError::SignIn);
    let is_attempt = request.path == "/login" || matches!(error, PageError::WrongToken);
    let retry = retry_after(&error);
    let (status, heading, text, advice) = explained(error);
    let made = if api::is_api(&request.path) {
        Ok(for_a_program(request, (status, heading, &text, advice)))
    } else if !request.accept.contains("text/html") {
        let parts = [heading, text.as_str(), advice].into_iter();
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        Ok(Response::text(format!("{}\n", parts.join("\n"))))
    } else if asks_to_sign_in {
        login::form(site, request, String::new())
    } else if is_attempt && [401, 403, 429].contains(&status) {
        login::form(site, request, text)
    } else {
        let page = ErrorPage {
            shell: Shell::new(site, request, Some(viewer)).titled(heading, Section::Other),
            heading,
            text,
            advice,
            request: request.id.clone(),
            seen,
            is_away: status == 503 && request.verb == Verb::Get,
        };
        page.render().map(Response::html).map_err(Into::into)
    };
    let response = made.unwrap_or_else(|error| {
        let (id, reason) = (&request.id, format!("{error:?}"));
        log::error!("web: request {id}: {reason}");
        Response::text(heading)
    });
    let response = response.with_status(status);
    match status {
        401 if request.credentials.bearer.is_some() || api::is_api(&request.path) => {
            response.with_header("www-authenticate", "Bearer")
        }
        503 | 429 => response.with_header("retry-after", retry),
        _ => response,
    }
}

/// Returns the seconds after which the same request may succeed, as far as they are known.
fn retry_after(error: &PageError) -> String {
    match error {
        PageError::OverQuota(_, Some(time)) => time.as_secs().to_string(),
        _ => "2".to_owned(),
    }
}

/// Returns an error in JSON; it names the request in the log, as the page does.
fn for_a_program(request: &Request, error: (u16, &str, &str, &str)) -> Response {
    let (status, heading, text, advice) = error;
    if status == 500 {
        let advice = format!(
            "The log of this server has the reason, at request {}.",
            request.id
        );
        return api::explained(status, heading, text, &advice);
    }
    api::explained(status, heading, text, advice)
}

fn cached_content(site: &Site, request: &Request, viewer: &Viewer) -> Option<CachedContent> {
    let topic = Topic {
        database: request.database,
        address: request.address(),
        role: viewer.role,
    };
    let now = clock::instant();
    let page = site
        .pages
        .get(&topic, now)
        .filter(|_| request.verb == Verb::Get)?;
    Some(CachedContent {
        content: Markup::trusted(page.content.to_string()),
        seconds: now.saturating_duration_since(page.at).as_secs_f64(),
    })
}

fn explained(error: PageError) -> (u16, &'static str, String, &'static str) {
    match error {
        PageError::NotFound(text) => (404, "Not found", text, ""),
        PageError::Invalid(text) => (400, "Not possible", text, ""),
        PageError::Conflict(text) => (409, "Not possible now", text, ""),
        PageError::KeyReused(text) => (422, "Key of another request", text, ""),
        PageError::Refused(text) => (403, "Not allowed", text, ""),
        PageError::Forbidden => (
            403,
            "Not allowed",
            "The role of this token does not allow it.".to_owned(),
            "Sign in with a token of the role operator.",
        ),
        PageError::SignIn => (401, "Sign in", "This needs a token.".to_owned(), ""),
        PageError::WrongToken => (
            401,
            "Sign in",
            "There is no such token, or it has expired or was revoked.".to_owned(),
            "",
        ),
        PageError::OverQuota(text, _) => (429, "Quota used up", text, ""),
        PageError::TooMany(wait) => (
            429,
            "Too many attempts",
            format!(
                "Too many wrong tokens. Try again in {} s.",
                wait.as_secs().max(1)
            ),
            "",
        ),
        other => not_there(other),
    }
}

/// Explains what is no fault of the request.
fn not_there(error: PageError) -> (u16, &'static str, String, &'static str) {
    match error {
        PageError::Away => (
            503,
            "Database away",
            "The database does not answer.".to_owned(),
            "No job is lost: workers continue what they run, keep what they have to report, and try again. \
             Nothing can be changed from here until the database answers.",
        ),
        PageError::Late => (
            503,
            "Too slow",
            "The database took too long to answer.".to_owned(),
            "Try again, or narrow the filter.",
        ),
        PageError::Busy => (
            503,
            "Database busy",
            "Another transaction holds what this takes.".to_owned(),
            "Try again in a moment.",
        ),
        PageError::Tables(text) => (
            503,
            "Tables missing",
            text.to_owned(),
            "Run `windlass migrate --database URL`.",
        ),
        _ => (
            500,
            "Internal error",
            String::new(),
            "The log of this server has the reason, at the request below.",
        ),
    }
}
