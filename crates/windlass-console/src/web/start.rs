//! Checks the settings of a server, and starts its threads.

use crate::web::access::addresses::{self, AddressRange};
use crate::web::access::secret::SecretDigest;
use crate::web::access::settings::{Access, AccessSettings};
use crate::web::api::job_request;
use crate::web::assets::Assets;
use crate::web::dispatch::queue::{self, PageDispatcher};
use crate::web::dispatch::{operations, sampler};
use crate::web::http::Verb;
use crate::web::live::{CachedPages, Hub};
use crate::web::net::engine;
use crate::web::net::forward::Engine;
use crate::web::reads;
use crate::web::request::route::Route;
use crate::web::server::{RunningServer, ServedDatabase, Server};
use crate::web::site::{self, LongPolls, OperationsWake, Section, Site, SiteSettings, Source};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use windlass::internal::db::schema::migrate;
use windlass::internal::db::table::web::tokens;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::process::base::stop;
use windlass::{AsConn as _, Error, Result};

/// The time limit for the connection on which the start looks for tokens.
const CONNECT: Duration = Duration::from_secs(5);

/// The longest idle time of a session: sessions are cleared some time after it.
const LONGEST_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Binds the address.
pub(crate) fn bind(server: &Server) -> Result<TcpListener> {
    TcpListener::bind(&server.listen).map_err(|source| refused(server, source))
}

fn refused(server: &Server, source: std::io::Error) -> Error {
    Error::Io {
        action: "listen on",
        path: PathBuf::from(&server.listen),
        source,
    }
}

impl Server {
    /// Starts the server on threads of its own. It also starts while its databases are away.
    ///
    /// # Errors
    /// If a setting is wrong, the address is in use, or a thread cannot be started. If it can be
    /// reached from elsewhere or is set up for a proxy, and there is neither a token nor a proxy that
    /// names its users.
    pub fn start(self) -> Result<RunningServer> {
        let listener = bind(&self)?;
        start_on(&self, listener)
    }
}

/// Starts the server on a listener that is bound.
pub(crate) fn start_on(server: &Server, listener: TcpListener) -> Result<RunningServer> {
    if server.has_pages() && !(2..=4).contains(&server.threads) {
        return server.wrong(format!(
            "`web.threads` is from 2 to 4: how many threads read and change the database; it is {}",
            server.threads
        ));
    }
    let address = listener.local_addr();
    let address = address.map_err(|source| refused(server, source))?;
    let access = access(server, address.ip().to_canonical().is_loopback())?;
    let (wake, woken) = site::wake();
    let site = Arc::new(site(server, access, wake)?);
    if server.has_pages() {
        must_be_closed(&site, &server.listen)?;
    }
    let (renewals, renewer) = reads::start(&site)?;
    let workers = queue::start(&site, server.routes, server.threads, &renewals);
    let (queue, mut threads) = workers?;
    threads.push(renewer);
    let (stop, stopping) = watch::channel(false);
    if server.has_pages() && !site.access.settings.read_only {
        threads.push(operations::start(&site, woken, stopping.clone())?);
    }
    let engine = Engine::new(Arc::clone(&site), queue);
    threads.push(engine::start(Arc::new(engine), listener, stopping)?);
    if server.has_pages() {
        threads.push(job_request::start(&site)?);
        let dispatcher = PageDispatcher::new(&site, server.routes, renewals);
        let sampler = stop::spawn("web-live", move || sampler::run(dispatcher));
        // Without its receiver, the other threads end.
        threads.push(sampler?);
    }
    Ok(RunningServer::new(address, stop, site, threads))
}

fn access(server: &Server, is_loopback: bool) -> Result<AccessSettings> {
    let trusted_proxies = trusted_proxies(server)?;
    let user_header = user_header(server, &trusted_proxies)?;
    let idle = server.session_idle;
    if idle.is_zero() || server.session_lifetime.is_zero() || idle > LONGEST_IDLE {
        return server.wrong(
            "`web.session_idle` and `web.session_lifetime` are longer than nothing, and \
             `web.session_idle` is at most 30 days",
        );
    }
    let host = gethostname::gethostname();
    let local_name = server.local_name.clone();
    Ok(AccessSettings {
        is_loopback,
        hosts: hosts(server)?,
        public_origin: server.public_origin.clone(),
        trusted_proxies,
        user_header,
        operators: server.operators.clone(),
        read_only: server.read_only,
        has_base_path: !base_path(server)?.is_empty(),
        local_name: local_name.unwrap_or_else(|| format!("local@{}", host.to_string_lossy())),
        session_idle: idle,
        session_lifetime: server.session_lifetime,
    })
}

/// Returns the names by which the server is called.
fn hosts(server: &Server) -> Result<Vec<String>> {
    let mut names = server.hosts.clone();
    if let Some(origin) = &server.public_origin {
        match origin.split_once("://") {
            Some(("http" | "https", rest)) if !rest.contains('/') => names.push(rest.to_owned()),
            _ => {
                return server.wrong(format!(
                    "`web.public_origin` is the start of an address, such as `https://jobs.example.com`, \
                     without a path; it is `{origin}`"
                ));
            }
        }
    }
    let mut hosts = Vec::new();
    for name in names {
        match addresses::split(&name) {
            Some((name, _)) if !name.contains(['/', ' ']) => hosts.push(name),
            _ => {
                return server.wrong(format!(
                    "`web.hosts` has names such as `jobs.example.com`; `{name}` is none"
                ));
            }
        }
    }
    Ok(hosts)
}

fn trusted_proxies(server: &Server) -> Result<Vec<AddressRange>> {
    let proxies = server.trusted_proxies.iter().map(|text| text.parse());
    let proxies: Result<_, String> = proxies.collect();
    match proxies {
        Ok(proxies) => Ok(proxies),
        Err(wrong) => server.wrong(format!("`web.trusted_proxies`: {wrong}")),
    }
}

/// Returns the name of the header in which a proxy names the user.
fn user_header(server: &Server, proxies: &[AddressRange]) -> Result<Option<String>> {
    let Some(name) = &server.user_header else {
        return Ok(None);
    };
    let name = name.trim().to_ascii_lowercase();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return server.wrong(format!(
            "`web.user_header` is no name of a header: `{name}`"
        ));
    }
    if proxies.is_empty() {
        return server.wrong(
            "`web.user_header` is believed only from the addresses in `web.trusted_proxies`: \
             set that too, or anyone could be any user",
        );
    }
    Ok(Some(name))
}

fn site(server: &Server, access: AccessSettings, operations: OperationsWake) -> Result<Site> {
    let base_path = base_path(server)?;
    let mut sources: Vec<Source> = Vec::new();
    for served in &server.databases {
        let name = database_name(served);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_first = sources.is_empty();
        let may_be_in_links = !name.is_empty() && name.bytes().all(is_name);
        if sources.iter().any(|source| source.name == name) || !(is_first || may_be_in_links) {
            return server.wrong(format!(
                "each database of `web` has a name of its own, of letters, digits and `-_.`; `{name}` \
                 is not possible"
            ));
        }
        sources.push(Source::new(
            name,
            served.database.clone(),
            served.replica.clone(),
        ));
    }
    let first = sources.first().map(|source| source.database.target());
    let digest = SecretDigest::of(&format!("{}{base_path}", first.unwrap_or_default()));
    Ok(Site {
        sources,
        sections: sections(server.routes),
        settings: SiteSettings {
            base_path,
            metrics_open: server.metrics_open,
            promises: server.promises.clone(),
        },
        processes: server.processes.clone(),
        access: Access::new(access),
        session_cookie: format!("windlass_session_{}", &digest.lookup()[..6]),
        operations,
        assets: Assets::default(),
        hub: Hub::default(),
        polls: LongPolls::default(),
        pages: CachedPages::default(),
    })
}

/// The first segments of the paths that the server answers beside its routes.
const OWN_SEGMENTS: [&str; 8] = [
    "assets",
    "db",
    "favicon.ico",
    "live",
    "livez",
    "login",
    "logout",
    "startedz",
];

fn base_path(server: &Server) -> Result<String> {
    let path = server.base_path.trim().trim_matches('/');
    let is_segment = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    if !path.bytes().all(is_segment) || path.contains("//") {
        return server.wrong(format!(
            "`web.base_path` is a path such as `/windlass`; it is `{}`",
            server.base_path
        ));
    }
    // A proxy may remove the path or not: then nobody could tell what is meant.
    let first = path.split('/').next().unwrap_or_default();
    let mut own = server.routes.iter().map(|route| route.pattern);
    let is_own = own.any(|pattern| pattern.split('/').nth(1) == Some(first));
    if !path.is_empty() && (is_own || OWN_SEGMENTS.contains(&first)) {
        return server.wrong(format!(
            "`web.base_path` is `{}`, and the server has pages of its own there: choose another name, \
             such as `/windlass`",
            server.base_path
        ));
    }
    Ok(match path {
        "" => String::new(),
        path => format!("/{path}"),
    })
}

/// Returns the name of a database: as given, or the last part of its address.
fn database_name(served: &ServedDatabase) -> String {
    if !served.name.is_empty() {
        return served.name.clone();
    }
    let target = served.database.target();
    let last = target.rsplit('/').find(|part| !part.is_empty());
    last.unwrap_or("jobs").to_owned()
}

/// Returns the entries of the navigation that have a page.
fn sections(routes: &[Route]) -> Vec<Section> {
    let has_page = |section: &Section| {
        routes
            .iter()
            .any(|route| route.verb == Verb::Get && route.pattern == section.path())
    };
    Section::ALL.into_iter().filter(has_page).collect()
}

/// Refuses to be reachable from elsewhere, also through a proxy, without a way to sign in.
fn must_be_closed(site: &Site, listen: &str) -> Result<()> {
    let settings = &site.access.settings;
    let Some(first) = site.sources.first() else {
        return Ok(());
    };
    if site.access.may_be_local() || settings.user_header.is_some() {
        return Ok(());
    }
    let database = &first.database;
    let found = database.connect_within(CONNECT).and_then(|mut connection| {
        let mut conn = connection.as_conn();
        migrate::check(&mut conn, database)?;
        tokens::exist_active(&mut conn).during("look for tokens")
    });
    match found {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Settings(format!(
            "`windlass web` on {listen} can be reached from other hosts, directly or through the proxy that \
             it is set up for, and there is no way to sign in: make a token with \
             `windlass web tokens add NAME --role operator`, or set `trusted_proxies` and `user_header` \
             in `[web]`, or listen on 127.0.0.1 without settings for a proxy"
        ))),
        // Without an answer, everyone must sign in all the same.
        Err(Error::Connect { reason, .. }) => {
            log::warn!("web: the database does not answer: {reason}");
            Ok(())
        }
        Err(other) => Err(other),
    }
}
