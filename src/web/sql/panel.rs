//! A part of a page that may be missing while the rest stands.

use crate::web::show::markup::escaped;
use askama::filters::HtmlSafe;
use std::fmt;

/// The result of one read, or why it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Panel<T> {
    Ready(T),
    /// Show it in the panel's place: `{{ missing }}`.
    Missing(MissingPanel),
}

/// Why a panel is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It was not read within its deadline.
    Late,
    /// The database does not answer.
    Away,
    /// It failed; the log says why.
    Failed,
}

/// What stands in the place of a panel: a block of HTML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingPanel {
    pub(crate) why: Missing,
    /// What it would have shown, in words of this program: `the jobs of each class`.
    pub(crate) what: &'static str,
    /// The name of the request, by which its line in the log is found.
    pub(crate) request: String,
}

impl<T> Panel<T> {
    pub(crate) fn ready(&self) -> Option<&T> {
        match self {
            Panel::Ready(value) => Some(value),
            Panel::Missing(_) => None,
        }
    }

    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Panel<U> {
        match self {
            Panel::Ready(value) => Panel::Ready(map(value)),
            Panel::Missing(missing) => Panel::Missing(missing),
        }
    }
}

impl HtmlSafe for MissingPanel {}

impl fmt::Display for MissingPanel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = escaped(self.what);
        let request = escaped(&self.request);
        f.write_str("<div class=\"away\" role=\"status\">")?;
        match self.why {
            Missing::Late => write!(
                f,
                "<p><b>This panel was not ready within 1 s.</b> It shows {what}. The rest of this page is complete.</p>"
            ),
            Missing::Away => write!(
                f,
                "<p><b>This panel is missing:</b> the database does not answer. It shows {what}.</p>"
            ),
            Missing::Failed => write!(
                f,
                "<p><b>This panel is missing:</b> an error occurred. It shows {what}. The log of this server has the reason, at request <code>{request}</code>.</p>"
            ),
        }?;
        f.write_str("</div>")
    }
}
