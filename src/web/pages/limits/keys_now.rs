//! The concurrency keys of one page, and what an address asks for.

use crate::admin::now::Fleet;
use crate::db::Conn;
use crate::db::query::load::keys::{self, KeyInUse, KeysWanted, SlotHolder};
use crate::db::query::load::totals::{self, CappedCount};
use crate::error::{Doing as _, Result as WindlassResult};
use crate::web::request::cx::Cx;

/// What an address asks for.
#[derive(Debug, Clone)]
pub(crate) struct KeyFilter {
    /// The start of the keys that are shown; empty for all.
    pub(crate) prefix: String,
    /// Whether only keys are shown for which jobs wait.
    pub(crate) is_waiting: bool,
    after: String,
}

/// The keys on one page.
const PAGE: i64 = 100;

/// The keys that are read for a page of those with a prefix: they need not be adjacent.
const SEARCHED: i64 = 1_000;

/// The keys of one page, with their holders.
#[derive(Debug)]
pub(crate) struct KeysNow {
    pub(crate) fleet: Fleet,
    pub(crate) keys: Vec<KeyInUse>,
    pub(crate) holders: Vec<SlotHolder>,
    /// The last key that was read, if there are more.
    pub(crate) reached: Option<String>,
    pub(crate) blocked: CappedCount,
}

impl KeyFilter {
    pub(crate) fn of(cx: &Cx<'_>) -> Self {
        let text = |name: &str| {
            let text = cx.query().get(name).unwrap_or_default().trim();
            text.replace('\0', "")
        };
        KeyFilter {
            prefix: text("key"),
            is_waiting: cx.query().has("waiting"),
            after: text("after"),
        }
    }

    /// Returns the address of the page that goes on after a key.
    pub(crate) fn after(&self, key: &str) -> String {
        let mut pairs = Vec::new();
        if !self.prefix.is_empty() {
            pairs.push(("key", self.prefix.as_str()));
        }
        if self.is_waiting {
            pairs.push(("waiting", "1"));
        }
        pairs.push(("after", key));
        crate::web::http::link::with_query("/limits", &pairs)
    }
}

pub(crate) fn read(conn: &mut Conn<'_>, search: &KeyFilter) -> WindlassResult<KeysNow> {
    let doing = "look at the concurrency keys";
    let wanted = match search.is_waiting {
        true => KeysWanted::Waiting,
        false => KeysWanted::All,
    };
    let is_searched = !search.prefix.is_empty();
    let limit = if is_searched { SEARCHED } else { PAGE };
    let mut keys = keys::page(conn, wanted, &search.after, limit).doing(doing)?;
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_more = keys.len() > most;
    keys.truncate(most);
    let mut reached = keys.last().map(|key| key.key.clone()).filter(|_| is_more);
    if is_searched {
        keys.retain(|key| key.key.starts_with(&search.prefix));
        // A key is found at once by its whole name.
        if search.after.is_empty() && keys.iter().all(|key| key.key != search.prefix) {
            let whole = keys::one(conn, &search.prefix).doing(doing)?;
            let is_used = |key: &KeyInUse| key.held() > 0 || !key.blocked.is_zero();
            keys.extend(whole.filter(is_used));
        }
        let page = usize::try_from(PAGE).unwrap_or(usize::MAX);
        if keys.len() > page {
            keys.truncate(page);
            reached = keys.last().map(|key| key.key.clone());
        }
    }
    let names: Vec<&str> = keys.iter().map(|key| key.key.as_str()).collect();
    let holders = keys::holders(conn, &names).doing(doing)?;
    Ok(KeysNow {
        holders,
        keys,
        reached,
        fleet: Fleet::read(conn)?,
        blocked: totals::blocked(conn).doing(doing)?,
    })
}
