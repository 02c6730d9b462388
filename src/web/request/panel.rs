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
    /// It was left out, because another panel was asked for alone.
    LeftOut,
}

/// What stands in the place of a panel: a block of HTML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingPanel {
    pub(crate) why: Missing,
    /// What it would have shown, in words of this program: `the jobs of each class`.
    pub(crate) what: &'static str,
    /// The name of the request, by which its line in the log is found.
    pub(crate) request: String,
    /// A link to the page with this panel alone.
    pub(crate) alone: String,
    /// The link was followed already.
    pub(crate) is_alone: bool,
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
        let (request, alone) = (escaped(&self.request), escaped(&self.alone));
        f.write_str("<div class=\"away\" role=\"status\">")?;
        match self.why {
            Missing::Late if self.is_alone => write!(
                f,
                "<p><b>This panel was not ready within 5 s</b>, even alone. It shows {what}.</p>"
            ),
            Missing::Late => write!(
                f,
                "<p><b>This panel was not ready within 1 s.</b> It shows {what}. The rest of this page is complete.</p>\
                 <p><a href=\"{alone}\">Try this panel alone</a>: it may take 5 s then.</p>"
            ),
            Missing::LeftOut => write!(
                f,
                "<p>Left out, because another panel was asked for alone. It shows {what}. <a href=\"{alone}\">Show this one</a></p>"
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
