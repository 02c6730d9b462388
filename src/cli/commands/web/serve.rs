//! `windlass web`, the server.

use crate::cli::config::{ConfigSource, option};
use crate::cli::mount::At;
use crate::config::reader::Argument;
use crate::db::model::audit::Actor;
use crate::error::Result;
use crate::process::base::parent::BROKEN;
use crate::process::base::stop::Stop;
use crate::process::base::{service, signals};
use std::process::ExitCode;

/// How to serve.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    source: ConfigSource,

    /// The address and port to listen on [default: 127.0.0.1:4040]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,

    /// The path below which a proxy shows the pages, such as /windlass
    #[arg(long, value_name = "PATH")]
    base_path: Option<String>,

    /// A name by which the server is called; may be given several times
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// The start of the address that browsers show behind a proxy, such as `https://jobs.example.com`
    #[arg(long, value_name = "ORIGIN")]
    public_origin: Option<String>,

    /// The address of a proxy whose headers are believed, or a range; may be given several times
    #[arg(long = "trusted-proxy", value_name = "ADDRESS")]
    trusted_proxies: Vec<String>,

    /// The header in which a trusted proxy names the user
    #[arg(long, value_name = "HEADER")]
    user_header: Option<String>,

    /// A user of that header who may change things, or * for all; may be given several times
    #[arg(long = "operator", value_name = "USER")]
    operators: Vec<String>,

    /// Refuse all changes, also those of operators
    #[arg(long)]
    read_only: bool,

    /// A replica to read the pages from
    ///
    /// Pass a password through the environment or the configuration instead, as for --database.
    #[arg(long, value_name = "URL")]
    replica: Option<String>,

    /// Another database to show, below /db/NAME/; may be given several times
    #[arg(long = "also", value_name = "NAME=URL")]
    databases: Vec<String>,
}

impl Serve {
    /// Serves until a signal comes.
    pub(crate) fn run(&self, at: &At<'_>) -> Result<ExitCode> {
        let config = self.source.read(at.url(), self.arguments())?.warned();
        let database = match at.given() {
            Some(database) => database.clone(),
            None => config.database()?,
        };
        // A signal that comes while it starts must not be lost.
        signals::install(false)?;
        let server = config
            .web(&database)?
            .local_name(Actor::default().name().to_owned())
            .start()?;
        let base = &config.web.base_path.value.0;
        let base = base.trim().trim_matches('/');
        let address = server.address();
        log::info!("web: listening on http://{address}/{base}");
        let stop = Stop::new();
        signals::forward_to(&stop);
        service::notify_until(&stop, || server.is_running());
        let is_broken = !stop.is_stopped();
        server.stop();
        server.wait();
        Ok(if is_broken {
            ExitCode::from(BROKEN)
        } else {
            ExitCode::SUCCESS
        })
    }

    fn arguments(&self) -> Vec<Argument> {
        let lists = [
            ("hosts", "--host", &self.hosts),
            ("trusted_proxies", "--trusted-proxy", &self.trusted_proxies),
            ("operators", "--operator", &self.operators),
            ("databases", "--also", &self.databases),
        ];
        let lists = lists.into_iter().filter(|(.., values)| !values.is_empty());
        let lists = lists.map(|(name, text, values)| option("web", name, text, values.join(",")));
        let texts = [
            ("listen", "--listen", &self.listen),
            ("base_path", "--base-path", &self.base_path),
            ("public_origin", "--public-origin", &self.public_origin),
            ("user_header", "--user-header", &self.user_header),
            ("replica", "--replica", &self.replica),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(name, text, value)| Some(option("web", name, text, value.clone()?)));
        let read_only = self
            .read_only
            .then(|| option("web", "read_only", "--read-only", "true".to_owned()));
        lists.chain(texts).chain(read_only).collect()
    }
}
