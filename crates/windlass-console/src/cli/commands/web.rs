//! `windlass web ...`.

use crate::cli::config::{CommandError, ConfigSource, option};
use crate::cli::mount::At;
use crate::cli::select::connect;
use crate::config::reader::Argument;
use crate::terminal::{self, Column, Report, Table, printable};
use crate::web::access::tokens;
use crate::web::access::viewer::{Role, TokenLimits};
use chrono::NaiveDateTime;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use windlass::internal::db::model::audit::{Actor, Via};
use windlass::internal::db::table::web::tokens::WebTokenRow;
use windlass::internal::process::base::stop::{BROKEN, Stop};
use windlass::internal::process::base::{service, signals};
use windlass::{AsConn as _, Database, Result};

/// Serve the web pages, or manage their tokens
///
/// By default only this host can connect, and everyone on it is an operator, until there is a token.
/// To be reached from elsewhere, the server needs tokens, or a proxy that names its users. It does
/// not speak HTTPS itself: put a proxy with TLS before it.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  windlass web                                   http://127.0.0.1:4040
  windlass web --read-only
  windlass web tokens add ada --role operator
  windlass web --listen 0.0.0.0:4040 --host jobs.example.com
  windlass web --base-path /windlass --public-origin https://example.com"
)]
pub(crate) struct Web {
    #[command(subcommand)]
    command: Option<WebCommand>,

    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum WebCommand {
    #[command(subcommand)]
    Tokens(TokensCommand),
}

impl Web {
    pub(crate) fn run(&self, at: &At<'_>) -> Result<ExitCode, CommandError> {
        match &self.command {
            Some(WebCommand::Tokens(tokens)) => tokens.show(&at.database()?),
            None => Ok(self.serve.run(at)?),
        }
    }

    /// Returns whether it runs until it is stopped.
    pub(crate) fn serves(&self) -> bool {
        self.command.is_none()
    }
}

// --- `windlass web`, the server ---

/// The options of the server.
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
        let base = &config.web.base_path;
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

// --- `windlass web tokens ...` ---

/// Make, list and revoke tokens
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TokensCommand {
    Add(AddToken),
    List(ListTokens),
    Revoke(RevokeToken),
}

impl TokensCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        Ok(match self {
            TokensCommand::Add(add) => terminal::show(&add.run(db)?, add.json),
            TokensCommand::List(list) => {
                terminal::show(&list.run(&db.clone().read_only())?, list.json)
            }
            TokensCommand::Revoke(revoke) => terminal::show(&revoke.run(db)?, revoke.json),
        })
    }
}

/// Make a token, and print it: it is shown only once
///
/// A viewer sees everything but hidden arguments, and an operator changes things too. An enqueuer enqueues
/// over HTTP (`POST /v1/jobs`), emits the events of its token, and sees nothing but what became of a job. A
/// person signs in with the token; a program sends it as `Authorization: Bearer`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass web tokens add ada --role operator
  windlass web tokens add prometheus --role viewer --expires '1 year'
  windlass web tokens add shop --role enqueuer --class 'mail/*' --queue default
  windlass web tokens add form --role enqueuer --class contact --arguments-only
  windlass web tokens add bank --role enqueuer --event 'paid/*'")]
pub(crate) struct AddToken {
    /// Who or what uses it; recorded with each change
    #[arg(value_name = "NAME")]
    name: String,

    /// The role of the token, which decides what it may do
    #[arg(long, value_name = "ROLE", value_parser = PossibleValuesParser::new(["viewer", "operator", "enqueuer"]))]
    role: String,

    /// A class that an enqueuer may enqueue; `mail/*` is all that begin so. May be repeated
    /// [default: all]
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,

    /// A queue to which an enqueuer may enqueue, in the same way [default: all]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,

    /// Let an enqueuer pass a class and its arguments, and no options such as the queue, the time or a unique id
    #[arg(long)]
    arguments_only: bool,

    /// An event that an enqueuer may emit; `paid/*` is all that begin so. May be repeated. Without `--class`, it may
    /// enqueue nothing [default: none]
    #[arg(long = "event", value_name = "EVENT")]
    events: Vec<String>,

    /// The lifetime of the token [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    expires: Option<Duration>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct AddedToken {
    id: i64,
    name: String,
    role: String,
    token: String,
}

impl AddToken {
    fn run(&self, database: &Database) -> Result<AddedToken> {
        let mut connection = connect(database)?;
        // The parser has accepted no other role.
        let role = Role::named(&self.role).unwrap_or(Role::Enqueuer);
        let by = Actor::default().via(Via::Cli);
        let limits = TokenLimits {
            arguments_only: self.arguments_only,
            ..TokenLimits::new(&self.classes, &self.queues).with_events(&self.events)
        };
        let made = tokens::add(
            &mut connection.as_conn(),
            &self.name,
            (role, &limits),
            &by,
            self.expires,
        )?;
        Ok(AddedToken {
            id: made.id,
            name: self.name.trim().to_owned(),
            role: self.role.clone(),
            token: made.secret.token(),
        })
    }
}

impl Report for AddedToken {
    fn text(&self, _: Option<usize>) -> String {
        let (id, name, role) = (self.id, printable(&self.name), &self.role);
        format!(
            "Token {id} for {name}, {role}. It is not shown again:\n\n{}\n",
            self.token
        )
    }
}

/// List the tokens
#[derive(Debug, clap::Args)]
pub(crate) struct ListTokens {
    /// Print JSON; times are in UTC
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ListedToken {
    id: i64,
    name: String,
    role: String,
    /// The limits of an enqueuer.
    limits: Option<TokenLimits>,
    state: &'static str,
    created_by: Option<String>,
    created_at: String,
    last_used_at: Option<String>,
    expires_at: Option<String>,
    revoked_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct ListedTokens {
    tokens: Vec<ListedToken>,
}

fn time(at: NaiveDateTime) -> String {
    at.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl From<WebTokenRow> for ListedToken {
    fn from(row: WebTokenRow) -> Self {
        ListedToken {
            state: match (row.is_active, row.revoked_at) {
                (true, _) => "active",
                (false, Some(_)) => "revoked",
                (false, None) => "expired",
            },
            id: row.id,
            name: row.name,
            role: row.role,
            limits: row.limits.as_deref().map(TokenLimits::of_column),
            created_by: row.created_by,
            created_at: time(row.created_at),
            last_used_at: row.last_used_at.map(time),
            expires_at: row.expires_at.map(time),
            revoked_at: row.revoked_at.map(time),
        }
    }
}

/// `mail/* to default`.
fn in_words(limits: &TokenLimits) -> String {
    let names = |names: &Option<Vec<String>>| names.as_ref().map(|names| names.join(", "));
    let (classes, queues) = (names(&limits.classes), names(&limits.queues));
    let to = queues.map(|queues| format!(" to {queues}"));
    let only = if limits.arguments_only {
        ", arguments only"
    } else {
        ""
    };
    let events = names(&limits.events);
    let events = events.map(|events| format!("; emits {events}"));
    let classes = match classes.as_deref() {
        Some("") => "none",
        Some(names) => names,
        None => "all",
    };
    format!(
        "{classes}{}{only}{}",
        to.unwrap_or_default(),
        events.unwrap_or_default()
    )
}

impl ListTokens {
    fn run(&self, database: &Database) -> Result<ListedTokens> {
        let rows = tokens::list(&mut connect(database)?.as_conn())?;
        Ok(ListedTokens {
            tokens: rows.into_iter().map(Into::into).collect(),
        })
    }
}

impl Report for ListedTokens {
    fn text(&self, width: Option<usize>) -> String {
        if self.tokens.is_empty() {
            return "There are no tokens: everyone on the host of `windlass web` is an operator.\n"
                .to_owned();
        }
        let mut table = Table::new(&[
            Column::number("ID"),
            Column::text("NAME"),
            Column::text("ROLE"),
            Column::text("MAY ENQUEUE"),
            Column::text("STATE"),
            Column::text("CREATED"),
            Column::text("BY"),
            Column::text("LAST USED"),
            Column::text("EXPIRES"),
        ]);
        for token in &self.tokens {
            let shown = |time: &Option<String>| time.clone().unwrap_or_default();
            table.add(vec![
                token.id.to_string(),
                printable(&token.name),
                token.role.clone(),
                printable(&token.limits.as_ref().map(in_words).unwrap_or_default()),
                token.state.to_owned(),
                token.created_at.clone(),
                printable(token.created_by.as_deref().unwrap_or_default()),
                shown(&token.last_used_at),
                shown(&token.expires_at),
            ]);
        }
        table.text(width)
    }
}

/// Revoke a token: what uses it is refused from now on, and its sessions end
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass web tokens revoke ada
  windlass web tokens revoke 3")]
pub(crate) struct RevokeToken {
    /// Its name, or its id
    #[arg(value_name = "NAME|ID")]
    token: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct RevokedTokens {
    revoked: Vec<i64>,
    sessions: usize,
}

impl RevokeToken {
    fn run(&self, database: &Database) -> Result<RevokedTokens> {
        let mut connection = connect(database)?;
        let (revoked, sessions) = tokens::revoke(
            &mut connection.as_conn(),
            &self.token,
            &Actor::default().via(Via::Cli),
        )?;
        Ok(RevokedTokens { revoked, sessions })
    }
}

impl Report for RevokedTokens {
    fn text(&self, _: Option<usize>) -> String {
        let ids: Vec<String> = self.revoked.iter().map(ToString::to_string).collect();
        format!(
            "Revoked token {}; {} sessions ended.\n",
            ids.join(", "),
            self.sessions
        )
    }
}
