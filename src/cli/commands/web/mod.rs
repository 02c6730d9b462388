//! `windlass web ...`.

pub(crate) mod serve;
pub(crate) mod tokens;

use crate::cli::commands::web::serve::Serve;
use crate::cli::commands::web::tokens::TokensCommand;
use crate::cli::failure::CommandError;
use crate::cli::mount::At;
use std::process::ExitCode;

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
