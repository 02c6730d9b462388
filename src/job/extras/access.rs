//! Enqueues jobs with public tokens.

use crate::db::Conn;
use crate::db::model::new_row::NewRow;
use crate::db::table::public_tokens::NewPublicToken;
use crate::db::transition::enqueue::public_tokens;
use crate::error::Result;
use crate::job::enqueued::{Enqueued, PublicToken, digest};
use crate::job::policy::quota::said;

/// Whether a job gets a public token, and what that shows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PublicAccess {
    pub(crate) wants_token: bool,
    pub(crate) shows_result: bool,
}

impl PublicAccess {
    /// Returns a new token and what to store of it, if the job gets one.
    ///
    /// # Errors
    /// As for [`PublicToken::generate`].
    pub(crate) fn token(self) -> Result<Option<(PublicToken, NewPublicToken)>> {
        if !self.wants_token {
            return Ok(None);
        }
        let token = PublicToken::generate()?;
        let new = NewPublicToken {
            digest: digest(&token.to_string()),
            shows_result: self.shows_result,
        };
        Ok(Some((token, new)))
    }
}

/// Inserts jobs, with the tokens of those that ask for one.
///
/// # Errors
/// As for [`PublicToken::generate`], and if a statement fails.
pub(crate) fn insert_with_tokens(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    accesses: &[PublicAccess],
) -> Result<Vec<Enqueued>> {
    let tokens = accesses.iter().map(|access| access.token());
    let tokens = tokens.collect::<Result<Vec<_>>>()?;
    let (tokens, new): (Vec<_>, Vec<_>) = tokens.into_iter().map(Option::unzip).unzip();
    let inserted = said(public_tokens::insert_all(conn, rows, &new))?;
    let enqueued = inserted
        .into_iter()
        .zip(tokens)
        .map(|((job, is_stored), token)| Enqueued {
            public_token: token.filter(|_| is_stored),
            ..job.into()
        });
    Ok(enqueued.collect())
}
