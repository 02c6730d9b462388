//! The values that `base.html` shows around each page.

use crate::web::access::viewer::{Proof, Viewer};
use crate::web::http::{self, Request, Response, Theme, decoded, encoded};
use crate::web::show::{self, Markup, capped, count};
use crate::web::site::{Frame, Section, Site};
use chrono::NaiveDateTime;

/// An entry of the navigation.
#[derive(Debug, Clone)]
pub(crate) struct NavEntry {
    pub(crate) label: &'static str,
    pub(crate) href: String,
    pub(crate) is_current: bool,
    /// A number beside it; empty for none.
    pub(crate) badge: String,
}

/// Another database to switch to.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseLink {
    pub(crate) name: String,
    pub(crate) href: String,
    pub(crate) is_current: bool,
}

/// The frame of a page: the field `shell` of each template.
#[derive(Debug, Clone)]
pub(crate) struct Shell {
    pub(crate) title: String,
    pub(crate) nav: Vec<NavEntry>,
    pub(crate) databases: Vec<DatabaseLink>,
    /// The name of the viewer; empty if not signed in.
    pub(crate) viewer: String,
    pub(crate) is_operator: bool,
    pub(crate) can_sign_out: bool,
    pub(crate) theme: Theme,
    pub(crate) flash: Option<String>,
    /// The time at the database when the page was read.
    pub(crate) now: NaiveDateTime,
    /// The path and query of the page within its database.
    pub(crate) address: String,
    /// The address of the page's live updates; empty for none.
    pub(crate) live: String,
    pub(crate) style: String,
    pub(crate) script: String,
    pub(crate) version: &'static str,
    pub(crate) database_kind: &'static str,
    prefix: String,
}

impl Shell {
    /// Returns the frame of a page that has read nothing.
    pub(crate) fn new(site: &Site, request: &Request, viewer: Option<&Viewer>) -> Self {
        let source = site.sources.get(request.database);
        let is_postgres = source.is_some_and(|source| source.database.listens_by_notification());
        let asset = |name: &str| site.link(0, &format!("/assets/{name}"));
        Shell {
            title: String::new(),
            nav: Vec::new(),
            databases: databases(site, request),
            viewer: viewer.map(|viewer| viewer.name.clone()).unwrap_or_default(),
            is_operator: viewer.is_some_and(Viewer::is_operator),
            can_sign_out: viewer.is_some_and(|viewer| matches!(viewer.proof, Proof::Session(_))),
            theme: request.theme,
            flash: request.flash.clone(),
            now: NaiveDateTime::default(),
            address: request.address(),
            live: String::new(),
            style: asset(&site.assets.style.name),
            script: asset(&site.assets.script.name),
            version: env!("CARGO_PKG_VERSION"),
            database_kind: if is_postgres { "Postgres" } else { "SQLite" },
            prefix: site.link(request.database, ""),
        }
        .with_nav(site)
    }

    fn with_nav(mut self, site: &Site) -> Self {
        let entry = |section: &Section| NavEntry {
            label: section.label(),
            href: self.link(section.path()),
            is_current: false,
            badge: String::new(),
        };
        self.nav = if self.viewer.is_empty() {
            Vec::new()
        } else {
            site.sections.iter().map(entry).collect()
        };
        self
    }

    pub(crate) fn titled(mut self, title: &str, section: Section) -> Self {
        self.title = title.to_owned();
        for entry in &mut self.nav {
            entry.is_current = entry.label == section.label();
        }
        self
    }

    /// Names where the page's live updates come from.
    pub(crate) fn live(mut self) -> Self {
        self.live = self.find("/live", [("path", &self.address)]);
        self
    }

    pub(crate) fn framed(mut self, frame: &Frame) -> Self {
        self.now = frame.now;
        for entry in &mut self.nav {
            entry.badge = match entry.label {
                label if label == Section::Failed.label() && frame.failed > 0 => {
                    capped(frame.failed)
                }
                label if label == Section::Overview.label() => frame
                    .attention
                    .filter(|things| *things > 0)
                    .map(count)
                    .unwrap_or_default(),
                _ => String::new(),
            };
        }
        self
    }

    /// Returns the address of this page, for a link to it.
    pub(crate) fn address_here(&self) -> &str {
        http::local(&self.address)
    }

    /// Returns a link to a path of this database: `{{ shell.link("/queues") }}`.
    pub(crate) fn link(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// Returns a link to a path of these segments, each encoded: `{{ shell.to(["queues", name]) }}`.
    pub(crate) fn to<const N: usize>(&self, segments: [&str; N]) -> String {
        self.link(&http::path(&segments))
    }

    /// The same for templates, which pass references: `{{ shell.at(["queues", name]) }}`.
    pub(crate) fn at(&self, segments: &[&str]) -> String {
        self.link(&http::path(segments))
    }

    /// Returns a link with a query: `{{ shell.find("/jobs", [("queue", name)]) }}`.
    pub(crate) fn find<const N: usize>(&self, path: &str, pairs: [(&str, &str); N]) -> String {
        self.link(&http::with_query(path, &pairs))
    }

    /// The same for templates, which pass references: `{{ shell.query("/jobs", [("queue", name)]) }}`.
    pub(crate) fn query(&self, path: &str, pairs: &[(&str, &str)]) -> String {
        self.link(&http::with_query(path, pairs))
    }

    /// Returns `<time>` around the time at which the page was read.
    pub(crate) fn as_of(&self) -> Markup {
        show::time(self.now, &self.now.format("%H:%M:%S").to_string())
    }

    /// Returns `<time>` around a time.
    pub(crate) fn time(&self, at: &NaiveDateTime) -> Markup {
        show::time_of(*at, self.now)
    }

    /// Returns `<time>` around `since 6 min`, for something that began so many seconds ago.
    pub(crate) fn since(&self, seconds: &f64) -> Markup {
        let text = format!("since {}", show::about(*seconds));
        let micros = (seconds.clamp(0.0, 1e12) * 1e6).round();
        #[allow(clippy::cast_possible_truncation, reason = "it is below 1e18")]
        let began = chrono::TimeDelta::microseconds(micros as i64);
        match self.now.checked_sub_signed(began) {
            Some(at) => show::time(at, &text),
            None => Markup::element("span", "nb", &text),
        }
    }

    /// Returns `<time>` around how long ago a time was.
    pub(crate) fn time_ago(&self, at: &NaiveDateTime) -> Markup {
        show::time_ago(*at, self.now)
    }
}

fn databases(site: &Site, request: &Request) -> Vec<DatabaseLink> {
    let links = site
        .sources
        .iter()
        .enumerate()
        .map(|(place, source)| DatabaseLink {
            name: source.name.clone(),
            href: site.link(place, "/"),
            is_current: place == request.database,
        });
    links.collect()
}

// --- The flash of a change, shown once on the next page ---

/// The name of the cookie.
pub(crate) const COOKIE: &str = "windlass_flash";

/// The most characters of a message.
const LONGEST: usize = 300;

/// Adds a message to a response that leads to another page.
pub(crate) fn set(response: Response, site: &Site, message: &str) -> Response {
    let message: String = message.chars().take(LONGEST).collect();
    cookie(response, site, &encoded(&message), 30)
}

/// Takes the message away with the first page that has shown it.
pub(crate) fn shown(response: Response, site: &Site, request: &Request) -> Response {
    let is_page = response.status == 200;
    if request.flash.is_some() && is_page {
        cookie(response, site, "", 0)
    } else {
        response
    }
}

/// Returns the message in a cookie's value.
pub(crate) fn read(value: &str) -> Option<String> {
    let message: String = decoded(value).chars().take(LONGEST).collect();
    Some(message).filter(|message| !message.trim().is_empty())
}

fn cookie(response: Response, site: &Site, value: &str, seconds: u32) -> Response {
    let path = site.cookie_path();
    response.with_header(
        "set-cookie",
        format!("{COOKIE}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict"),
    )
}
