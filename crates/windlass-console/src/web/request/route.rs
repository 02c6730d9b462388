//! A table of routes: a method and a pattern lead to a function.

use crate::web::access::viewer::{Need, Viewer};
use crate::web::http::{self, PageError, Pairs, Request, Response, Theme, Verb};
use crate::web::read::Watch;
use crate::web::reads::{Readers, Renewal, Writers};
use crate::web::request::shell::{self, Shell};
use crate::web::site::{self, Frame, Section, Site};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::internal::clock;
use windlass::internal::db::conn::reading::ReadFailure;
use windlass::{Conn, Result};

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
    /// True if its `[data-live]` elements are kept up to date in open pages.
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
                            params.push((name, http::decoded(given)))
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

// --- The context of a page: the request, the viewer, and ways to read, change and answer ---

/// The time limit of a panel, and of any other read.
pub(crate) const READ: Duration = Duration::from_secs(1);

/// After this time, a page reads nothing more: its other panels are late.
pub(crate) const PAGE: Duration = Duration::from_secs(5);

/// The context of one request.
#[derive(Debug)]
pub(crate) struct Cx<'a> {
    pub(crate) site: &'a Site,
    pub(crate) request: &'a Request,
    pub(crate) viewer: &'a Viewer,
    /// True if open pages of this route are kept up to date.
    is_live: bool,
    params: Vec<(&'static str, String)>,
    pub(super) readers: &'a mut Readers,
    /// `None` unless the viewer may change something.
    writers: Option<&'a mut Writers>,
    started_at: Instant,
    /// True if a read of this request found the database away.
    pub(super) is_away: bool,
    /// The reads to make after the page was sent.
    pub(super) renewals: Vec<Renewal>,
    /// True if one panel may be asked for alone.
    pub(super) may_be_alone: bool,
}

impl<'a> Cx<'a> {
    /// `writers` are kept only for a viewer who may change something.
    pub(crate) fn new(
        site: &'a Site,
        request: &'a Request,
        viewer: &'a Viewer,
        readers: &'a mut Readers,
        writers: Option<&'a mut Writers>,
    ) -> Self {
        Cx {
            site,
            request,
            viewer,
            is_live: false,
            params: Vec::new(),
            readers,
            writers: writers.filter(|_| viewer.may_write() && !site.access.settings.read_only),
            started_at: clock::instant(),
            is_away: false,
            renewals: Vec::new(),
            may_be_alone: true,
        }
    }

    pub(crate) fn on_route(mut self, is_live: bool, params: Vec<(&'static str, String)>) -> Self {
        self.is_live = is_live;
        self.params = params;
        self
    }

    /// Keeps open pages of this address from being brought up to date: it takes long to read.
    pub(crate) fn without_updates(&mut self) {
        self.is_live = false;
    }

    /// Reads all parts, whatever the address asks for: others get what was read.
    pub(crate) fn without_alone(&mut self) {
        self.may_be_alone = false;
    }

    /// Returns a part of the path, decoded: `name` of `/queues/{name}`.
    ///
    /// The empty text for a name that the pattern does not have.
    pub(crate) fn param(&self, name: &str) -> &str {
        let mut params = self.params.iter();
        let found = params.find(|(other, _)| *other == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    pub(crate) fn query(&self) -> &Pairs {
        &self.request.query
    }

    pub(crate) fn form(&self) -> &Pairs {
        &self.request.form
    }

    /// Reads from the database, or its replica, within 1 s.
    ///
    /// # Errors
    /// If the read is late or fails. A page that can do without uses [`panel`](Self::panel).
    pub(crate) fn read<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, PageError> {
        Ok(self.try_read(work)?)
    }

    fn try_read<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, ReadFailure> {
        self.try_read_within(READ, work)
    }

    pub(super) fn try_read_within<T>(
        &mut self,
        limit: Duration,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, ReadFailure> {
        let limit = self.left(limit)?;
        let read = self.readers.read(self.request.database, limit, work);
        self.is_away = matches!(read, Err(ReadFailure::Lost(_)));
        read
    }

    /// Returns for how long the next read may take.
    pub(super) fn left(&self, limit: Duration) -> Result<Duration, ReadFailure> {
        let left = PAGE.saturating_sub(self.started_at.elapsed());
        if left.is_zero() {
            return Err(ReadFailure::Late);
        }
        // A request whose read found the database away does not wait for it again.
        if self.is_away {
            return Err(ReadFailure::Lost(String::new()));
        }
        Ok(limit.min(left))
    }

    /// Returns what to read after the page was sent.
    pub(crate) fn renewals(&mut self) -> Vec<Renewal> {
        std::mem::take(&mut self.renewals)
    }

    /// Returns whether the database did not answer to this request.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away
    }

    /// Changes something, as the operator. Each statement has 5 s.
    ///
    /// # Errors
    /// If the viewer is not an operator: then there is no connection that could write. If the
    /// change fails.
    pub(crate) fn write<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, PageError> {
        let value = self.add(work)?;
        // The next page shows what has changed.
        if let Some(source) = self.site.sources.get(self.request.database) {
            source.forget();
        }
        Ok(value)
    }

    /// Adds what is no change of an operator: pages show it when they are read anew anyway.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub(crate) fn add<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, PageError> {
        let Some(writers) = self.writers.as_deref_mut() else {
            return Err(PageError::Forbidden);
        };
        Ok(writers.write(self.request.database, work)?)
    }

    /// Reads the newest state, which a replica may not have yet, if the viewer may change it.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(crate) fn read_newest<T>(
        &mut self,
        work: impl FnMut(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, PageError> {
        match self.writers.as_deref_mut() {
            Some(writers) => Ok(writers.read(self.request.database, work)?),
            None => self.read(work),
        }
    }

    /// Returns what several pages show of this database.
    pub(crate) fn watch(&self) -> Arc<Watch> {
        let source = self.site.sources.get(self.request.database);
        source.map_or_else(Arc::default, |source| Arc::clone(&source.watch))
    }

    /// Returns the time at the database, and the numbers of the navigation; at most 2 s old.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(crate) fn frame(&mut self) -> Result<Frame, PageError> {
        let database = self.request.database;
        let cached = self.site.sources.get(database);
        if let Some(frame) = cached.and_then(|source| source.frame.get(clock::instant())) {
            return Ok(frame);
        }
        let mut frame = match self.read(site::read) {
            // The page stands with the numbers of a while ago.
            Err(PageError::Late) => {
                let last = cached.and_then(|source| source.frame.last(clock::instant()));
                return last.ok_or(PageError::Late);
            }
            read => read?,
        };
        frame.attention = self.attention();
        if let Some(source) = self.site.sources.get(database) {
            source.frame.set(&frame);
        }
        Ok(frame)
    }

    /// Returns how many things need attention; `None` if that is not known now.
    fn attention(&mut self) -> Option<u64> {
        let watch = self.watch();
        if watch.recent_count().is_none() {
            // The page stands without it.
            let _ = self.read_load(READ);
        }
        watch.last_count()
    }

    /// Returns the frame of a page, for the field `shell` of its template.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(crate) fn shell(&mut self, title: &str, section: Section) -> Result<Shell, PageError> {
        let frame = self.frame()?;
        let shell = Shell::new(self.site, self.request, Some(self.viewer))
            .titled(title, section)
            .framed(&frame);
        // A panel that is asked for alone took long: it is not read again and again.
        let is_live = self.is_live && !self.request.query.has("alone");
        Ok(if is_live { shell.live() } else { shell })
    }

    /// Renders a template as the response.
    ///
    /// # Errors
    /// If the template fails.
    pub(crate) fn render(&self, template: &impl askama::Template) -> Result<Response, PageError> {
        Ok(Response::html(template.render()?))
    }

    /// Returns a link to a path of this database: `/queues` becomes `/base/db/name/queues`.
    pub(crate) fn link(&self, path: &str) -> String {
        self.site.link(self.request.database, path)
    }

    /// Returns to a page after a change, which then shows `message` once. `path` is one of this
    /// site, such as `/queues/mail`; build it with [`http::path`].
    pub(crate) fn done(&self, path: &str, message: &str) -> Response {
        let to = self.link(http::local(path));
        shell::set(Response::see_other(to), self.site, message)
    }
}

// --- The colours that a viewer has chosen ---

/// The name of the cookie.
pub(crate) const COOKIE: &str = "windlass_theme";

/// A year, in seconds.
const KEPT: u32 = 31_536_000;

/// Stores the choice in a cookie.
pub(crate) fn change(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let theme = Theme::named(cx.form().get("theme").unwrap_or_default()).name();
    let back = http::local(cx.form().get("back").unwrap_or("/"));
    let path = cx.site.cookie_path();
    Ok(Response::see_other(cx.link(back)).with_header(
        "set-cookie",
        format!("{COOKIE}={theme}; Path={path}; Max-Age={KEPT}; HttpOnly; SameSite=Strict"),
    ))
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
