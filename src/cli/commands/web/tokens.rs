//! `windlass web tokens ...`.

use crate::cli::failure::CommandError;
use crate::cli::select::connect;
use crate::db::model::audit::{Actor, Via};
use crate::db::table::web::tokens::WebTokenRow;
use crate::db::{AsConn as _, Database};
use crate::error::Result;
use crate::terminal::output::{self, Report};
use crate::terminal::table::{Column, Table, printable};
use crate::web::access::limits::TokenLimits;
use crate::web::access::tokens;
use crate::web::access::viewer::Role;
use chrono::NaiveDateTime;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

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
            TokensCommand::Add(add) => output::show(&add.run(db)?, add.json),
            TokensCommand::List(list) => {
                output::show(&list.run(&db.clone().read_only())?, list.json)
            }
            TokensCommand::Revoke(revoke) => output::show(&revoke.run(db)?, revoke.json),
        })
    }
}

/// Make a token, and print it: it is shown only once
///
/// A viewer sees everything but hidden arguments, and an operator changes things too. An enqueuer enqueues
/// over HTTP (`POST /v1/jobs`), and sees nothing but what became of a job. A person signs in with the
/// token; a program sends it as `Authorization: Bearer`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass web tokens add ada --role operator
  windlass web tokens add prometheus --role viewer --expires '1 year'
  windlass web tokens add shop --role enqueuer --class 'mail/*' --queue default
  windlass web tokens add form --role enqueuer --class contact --arguments-only")]
pub(crate) struct AddToken {
    /// Who or what uses it; recorded with each change
    #[arg(value_name = "NAME")]
    name: String,

    /// What it may do
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

    /// How long it may be used [default: until it is revoked]
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
            ..TokenLimits::new(&self.classes, &self.queues)
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
    /// What an enqueuer may enqueue.
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
    format!(
        "{}{}{only}",
        classes.as_deref().unwrap_or("all"),
        to.unwrap_or_default()
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
