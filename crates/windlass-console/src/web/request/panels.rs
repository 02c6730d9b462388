//! The panels of a page: each has its own read, with a time limit.

use crate::web::access::viewer::Proof;
use crate::web::cache::Freshness;
use crate::web::read::LoadAndConcerns;
use crate::web::reads::{CachedRead, FINDINGS, LOAD};
use crate::web::request::route::{Cx, PAGE, READ};
use crate::web::show::escaped;
use askama::filters::HtmlSafe;
use std::fmt;
use std::time::Duration;
use windlass::internal::clock;
use windlass::internal::db::conn::reading::ReadFailure;
use windlass::{Conn, Result};

impl Cx<'_> {
    /// Reads what a panel shows, within 1 s. A panel without its data says so, and the page stands.
    ///
    /// `what` names what the panel shows, as in "It shows `the jobs of each class`."
    pub(crate) fn panel<T>(
        &mut self,
        what: &'static str,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Panel<T> {
        self.panel_of(what, |cx, limit| cx.try_read_within(limit, work))
    }

    /// Returns what a panel shows, and its age, if other pages show it too and it takes long to read.
    pub(crate) fn cached_panel<T: Clone + Send>(
        &mut self,
        what: &'static str,
        read: &'static CachedRead<T>,
    ) -> Panel<(T, Duration)> {
        self.panel_of(what, |cx, limit| cx.cached(read, limit))
    }

    fn panel_of<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Self, Duration) -> Result<T, ReadFailure>,
    ) -> Panel<T> {
        let name = what.replace(' ', "-");
        let alone = self.request.query.get("alone");
        let alone = alone.filter(|_| self.may_be_alone);
        let is_alone = alone == Some(name.as_str());
        let why = match alone {
            Some(_) if !is_alone => Err(Missing::LeftOut),
            _ => Ok(if is_alone { PAGE } else { READ }),
        };
        let read = why.map(|limit| read(self, limit));
        let why = match read {
            Err(why) => why,
            Ok(read) => match self.missing(what, read) {
                Ok(value) => return Panel::Ready(value),
                Err(why) => why,
            },
        };
        let address = self.request.query.with("alone", &name).to_query();
        Panel::Missing(MissingPanel {
            why,
            what,
            request: self.request.id.clone(),
            alone: self.link(&format!("{}{address}", self.request.path)),
            is_alone,
        })
    }

    /// Returns why a panel was not read.
    fn missing<T>(&self, what: &str, read: Result<T, ReadFailure>) -> Result<T, Missing> {
        read.map_err(|failure| match failure {
            ReadFailure::Late | ReadFailure::Cut => Missing::Late,
            ReadFailure::Lost(_) => Missing::Away,
            ReadFailure::Failed(error) => {
                let id = &self.request.id;
                log::error!("web: request {id}: cannot show {what}: {error}");
                Missing::Failed
            }
        })
    }

    /// Returns what several pages share, and its age. A panel that is shown alone is read anew.
    fn cached<T: Clone + Send>(
        &mut self,
        read: &'static CachedRead<T>,
        limit: Duration,
    ) -> Result<(T, Duration), ReadFailure> {
        let (site, database) = (self.site, self.request.database);
        let slot = site.sources.get(database).map(read.slot);
        let slot = slot.filter(|_| limit <= READ);
        if let (Some(slot), Proof::Recalled) = (slot, self.viewer.proof)
            && let Some(cached) = slot.get(clock::instant(), read.live)
        {
            return Ok(cached);
        }
        match slot.map_or(Freshness::Nothing, |slot| slot.lookup(clock::instant())) {
            Freshness::Fresh(value, age) => return Ok((value, age)),
            Freshness::Stale(value, age) => {
                self.renewals.push(read.renewal(database));
                return Ok((value, age));
            }
            Freshness::Late => return Err(ReadFailure::Late),
            Freshness::Nothing => {}
        }
        let limit = self.left(limit)?;
        let result = read.renew(self.readers, (site, database), limit);
        match &result {
            Err(ReadFailure::Lost(_)) => self.is_away = true,
            // Once it is there, it is used while it is read anew.
            Err(ReadFailure::Late | ReadFailure::Cut)
                if slot.is_some_and(|slot| slot.claim_renewal(clock::instant())) =>
            {
                self.renewals.push(read.renewal(database));
            }
            _ => {}
        }
        Ok((result?, Duration::ZERO))
    }

    /// Returns the load and what needs attention, and their age.
    pub(super) fn read_load(
        &mut self,
        limit: Duration,
    ) -> Result<(LoadAndConcerns, Duration), ReadFailure> {
        // It stands without what `doctor` finds.
        let _ = self.cached(&FINDINGS, READ);
        self.cached(&LOAD, limit)
    }

    /// Returns the load and what needs attention, for a panel.
    pub(crate) fn load_panel(&mut self, what: &'static str) -> Panel<LoadAndConcerns> {
        let panel = self.panel_of(what, |cx, limit| cx.read_load(limit));
        panel.map(|(load, _)| load)
    }
}

// --- A part of a page that may be missing while the rest stands ---

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

/// A block of HTML in the place of a missing panel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingPanel {
    pub(crate) why: Missing,
    /// The missing content, in words of this program: `the jobs of each class`.
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
