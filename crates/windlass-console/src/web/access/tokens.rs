//! Making, listing and revoking tokens.

use crate::web::access::secret::{Secret, SecretDigest};
use crate::web::access::viewer::{Role, TokenLimits};
use std::time::Duration;
use windlass::internal::db::model::audit::Actor;
use windlass::internal::db::table::web::tokens::{self, NewWebToken, WebTokenRow};
use windlass::internal::db::transition::web;
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Error, Result};

/// The most characters of a name.
const LONGEST: usize = 100;

/// A token that was made. Its text is shown once, and stored nowhere.
#[derive(Debug)]
pub(crate) struct MadeToken {
    pub(crate) id: i64,
    pub(crate) secret: Secret,
}

/// Makes a token.
///
/// # Errors
/// If the name is empty, too long, or that of a token that is in use, or a token of another role than
/// enqueuer is limited.
pub(crate) fn add(
    conn: &mut Conn<'_>,
    name: &str,
    (role, limits): (Role, &TokenLimits),
    by: &Actor,
    expires_after: Option<Duration>,
) -> Result<MadeToken> {
    let limits = limits.to_column();
    if limits.is_some() && role != Role::Enqueuer {
        return Err(Error::Settings(
            "only an enqueuer is limited to classes, queues and arguments: leave out `--class`, `--queue` and \
             `--arguments-only`, or pass `--role enqueuer`"
                .to_owned(),
        ));
    }
    let name = name.trim();
    let is_plain = name.chars().all(|c| !c.is_control());
    if name.is_empty() || name.chars().count() > LONGEST || !is_plain || is_number(name) {
        return Err(Error::Settings(format!(
            "the name of a token has 1 to {LONGEST} characters, and is not a number: it names who or \
             what uses the token, and is recorded with each change"
        )));
    }
    let all = tokens::list_web_tokens(conn).during("list the tokens")?;
    if all
        .iter()
        .any(|token| token.is_active && token.name == name)
    {
        return Err(Error::Settings(format!(
            "a token `{name}` is in use: choose another name, or revoke that one first"
        )));
    }
    let secret = Secret::generate()?;
    let digest = SecretDigest::of(&secret.token());
    let token = NewWebToken {
        name,
        role: role.name(),
        lookup: digest.lookup(),
        digest: digest.as_str(),
        limits: limits.as_deref(),
        by: by.name(),
        expires_after,
    };
    let id = web::add_token(conn, by, &token).during("store the token")?;
    Ok(MadeToken { id, secret })
}

/// Returns all tokens, the newest first.
///
/// # Errors
/// If the database does not answer.
pub(crate) fn list(conn: &mut Conn<'_>) -> Result<Vec<WebTokenRow>> {
    tokens::list_web_tokens(conn).during("list the tokens")
}

/// Revokes the tokens with this name, or the one with this id. Returns their ids, and how many
/// sessions ended with them.
///
/// # Errors
/// If there is none that is in use.
pub(crate) fn revoke(conn: &mut Conn<'_>, which: &str, by: &Actor) -> Result<(Vec<i64>, usize)> {
    let all = tokens::list_web_tokens(conn).during("list the tokens")?;
    let id = which
        .trim()
        .parse::<i64>()
        .ok()
        .filter(|_| is_number(which));
    let named = all.iter().filter(|token| match id {
        Some(id) => token.id == id,
        None => token.name == which.trim(),
    });
    let (mut revoked, mut sessions) = (Vec::new(), 0);
    for token in named {
        if let Some(ended) =
            web::revoke_token(conn, by, (token.id, &token.name)).during("revoke the token")?
        {
            revoked.push(token.id);
            sessions += ended;
        }
    }
    if revoked.is_empty() {
        return Err(Error::Settings(format!(
            "no token `{which}` is in use: `windlass web tokens list` shows them"
        )));
    }
    Ok((revoked, sessions))
}

fn is_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
