//! The concurrency keys in use, and the limits that operators have set.

use crate::read::now::Fleet;
use crate::read::sql::keys::{self, KeyInUse, KeysWanted, SlotHolder};
use crate::read::sql::totals;
use crate::web::http::{PageError, Response};
use crate::web::pages::queues::{actor, back, named};
use crate::web::pages::rates::{self, RatePageLines};
use crate::web::pages::saturation::{self, SaturationLine};
use crate::web::pages::tenants::{self, TenantLines};
use crate::web::pages::words::{self, RangeTab};
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::chart::slots;
use crate::web::show::{Markup, bounded, count, duration, filters, verdict};
use crate::web::site::Section;
use askama::Template;
use windlass::internal::db::query::ready::CappedCount;
use windlass::internal::db::table::run_time::limits;
use windlass::internal::error::ErrorContext as _;
use windlass::limits::{Rate, RunTimeLimit};
use windlass::{Conn, Result as WindlassResult};

#[derive(Template)]
#[template(path = "limits/page.html")]
struct LimitsPage {
    shell: Shell,
    lead: Markup,
    keys: Panel<KeyPageLines>,
    set: Panel<Vec<RunTimeLimit>>,
    rates: Panel<RatePageLines>,
    shares: Panel<TenantLines>,
    /// `None` if no sample was taken in the range.
    saturation: Panel<Option<Vec<SaturationLine>>>,
    ranges: Vec<RangeTab>,
    range_words: &'static str,
    search: KeyFilter,
}

/// The keys of a page.
struct KeyPageLines {
    lines: Vec<KeyLine>,
    /// The address of the next page; empty if there is none.
    next: String,
}

/// Shows the keys in use.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let search = KeyFilter::of(cx);
    let now = cx.panel("the concurrency keys in use", |conn| read(conn, &search));
    let set = cx.panel("the limits that were set", |conn| {
        limits::list_limits(conn).during("look at the limits")
    });
    let after = cx.query().get("rates_after").unwrap_or_default().to_owned();
    let rates = cx.panel("the rates in use", |conn| rates::read(conn, &after));
    let queue = cx.query().get("queue").map(str::to_owned);
    let shares = cx.panel("the shared queues", |conn| {
        tenants::read(conn, queue.as_deref())
    });
    let range = words::chosen(cx.request);
    let saturation = cx.panel("the saturation", |conn| saturation::read(conn, range));
    let page = LimitsPage {
        rates,
        shares,
        saturation,
        ranges: words::tabs(cx.request),
        range_words: words::in_words(range),
        lead: lead(now.ready()),
        keys: now.map(|now| KeyPageLines {
            lines: key_lines(&now),
            next: now
                .reached
                .as_ref()
                .map(|key| search.after(key))
                .unwrap_or_default(),
        }),
        set,
        search,
        shell: cx.shell("Limits", Section::Limits)?,
    };
    cx.render(&page)
}

// --- Sets and clears limits ---

/// Sets the limit or the rate of the key that a form names, or both.
pub(crate) fn set(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let field = |cx: &Cx<'_>, name: &str| cx.form().get(name).unwrap_or_default().trim().to_owned();
    let (key, slots, burst) = (field(cx, "key"), field(cx, "slots"), field(cx, "burst"));
    let invalid = |message: &str| PageError::Invalid(message.to_owned());
    let number = |text: &str| (!text.is_empty()).then(|| text.parse::<u32>());
    let slots = number(&slots).transpose();
    let slots = slots.map_err(|_| invalid("The number of slots is a whole number from 0 on."))?;
    let burst = number(&burst).transpose();
    let burst = burst.map_err(|_| invalid("The burst is a whole number from 1 on."))?;
    let rate = match &*field(cx, "rate") {
        "" => None,
        text => Some(
            text.parse::<Rate>()
                .map_err(|error| invalid(&error.to_string()))?,
        ),
    };
    let rate = match (rate, burst) {
        (Some(rate), Some(burst)) => Some(rate.burst(burst)),
        (None, Some(_)) => return Err(invalid("A burst needs a rate.")),
        (rate, None) => rate,
    };
    let actor = actor(cx);
    match (&rate, slots) {
        (Some(rate), slots) => cx.write(|conn| actor.set_rate(conn, &key, rate, slots))?,
        (None, Some(slots)) => cx.write(|conn| actor.set_limit(conn, &key, slots))?,
        (None, None) => return Err(invalid("Name a number of slots, or a rate as 10/s.")),
    }
    let jobs = |slots: u32| if slots == 1 { "job" } else { "jobs" };
    let slots = slots.map(|slots| format!("{slots} {} at once", jobs(slots)));
    let rate = rate.map(|rate| format!("the rate {rate}"));
    let values: Vec<String> = slots.into_iter().chain(rate).collect();
    let message = format!("The limit of {} is {}.", named(&key), values.join(", and "));
    Ok(back(cx, &message))
}

/// Clears the limit of the key that a form names.
pub(crate) fn clear(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let key = cx.form().get("key").unwrap_or_default().to_owned();
    let actor = actor(cx);
    let cleared = cx.write(|conn| actor.clear_limit(conn, &key))?;
    let name = named(&key);
    let message = match cleared {
        true => format!("Cleared the limit of {name}: the limits of its jobs count again."),
        false => format!("{name} had no limit that was set."),
    };
    Ok(back(cx, &message))
}

// --- The rows of the table of concurrency keys ---

/// The severity of a key's state, by which the rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyRank {
    Bad,
    Warning,
    Waiting,
    Fine,
}

/// A key in the table.
#[derive(Debug, Clone)]
pub(crate) struct KeyLine {
    pub(crate) key: String,
    pub(crate) verdict: Markup,
    pub(crate) slots: Markup,
    pub(crate) limit: String,
    pub(crate) limit_is_set: bool,
    pub(crate) running: CappedCount,
    pub(crate) ready: CappedCount,
    pub(crate) blocked: CappedCount,
    pub(crate) waited: Option<f64>,
    /// The first of the jobs that hold a slot.
    pub(crate) holders: Vec<i64>,
    /// The number of jobs that hold one beside these.
    pub(crate) more_holders: u64,
    rank: KeyRank,
}

/// The most holders that are named.
const NAMED: usize = 3;

/// In seconds. A free slot is given to a waiting job within seconds.
const STUCK: f64 = 60.0;

/// Returns the keys, the worst first.
pub(crate) fn key_lines(now: &KeysNow) -> Vec<KeyLine> {
    let lines = now.keys.iter().map(|key| {
        let holders: Vec<&SlotHolder> = now
            .holders
            .iter()
            .filter(|holder| holder.key == key.key)
            .collect();
        line(key, &holders, &now.fleet)
    });
    let mut lines: Vec<KeyLine> = lines.collect();
    lines.sort_by(|one, other| {
        let age = |line: &KeyLine| line.waited.unwrap_or(-1.0);
        one.rank
            .cmp(&other.rank)
            .then_with(|| age(other).total_cmp(&age(one)))
    });
    lines
}

fn line(key: &KeyInUse, holders: &[&SlotHolder], fleet: &Fleet) -> KeyLine {
    let (rank, verdict) = judge(key, holders, fleet);
    let limit = key.limit.map(|limit| u64::try_from(limit).unwrap_or(0));
    let named: Vec<i64> = holders
        .iter()
        .take(NAMED)
        .map(|holder| holder.job_id)
        .collect();
    KeyLine {
        key: key.key.clone(),
        verdict,
        slots: limit.map_or_else(Markup::default, |limit| {
            slots(
                limit,
                key.claimed.count,
                key.ready.count + key.scheduled.count,
            )
        }),
        limit: limit.map_or_else(|| "–".to_owned(), count),
        limit_is_set: key.limit_is_set,
        running: key.claimed,
        ready: key.ready,
        blocked: key.blocked,
        waited: key.waited_seconds,
        more_holders: key.held().saturating_sub(named.len() as u64),
        holders: named,
        rank,
    }
}

/// Judges a key: whether its waiting jobs will start.
fn judge(key: &KeyInUse, holders: &[&SlotHolder], fleet: &Fleet) -> (KeyRank, Markup) {
    let held = key.held();
    let Some(limit) = key.limit else {
        return (
            KeyRank::Fine,
            Markup::element("span", "q", "of Rails, which counts its own slots"),
        );
    };
    let limit = u64::try_from(limit).unwrap_or(0);
    if key.blocked.is_zero() {
        let text = match limit.checked_sub(held) {
            Some(0) | None => "all slots are taken, and no job waits".to_owned(),
            Some(free) => format!("{} free", count(free)),
        };
        return (KeyRank::Fine, verdict("ok", &text));
    }
    judge_waiting(key, limit, holders, fleet)
}

/// Judges a key with waiting jobs.
fn judge_waiting(
    key: &KeyInUse,
    limit: u64,
    holders: &[&SlotHolder],
    fleet: &Fleet,
) -> (KeyRank, Markup) {
    let warning = |text: &str| (KeyRank::Warning, verdict("warn", text));
    let bad = |text: &str| (KeyRank::Bad, verdict("bad", text));
    let fine = |text: &str| (KeyRank::Waiting, verdict("ok", text));
    if limit == 0 {
        return warning("the limit is 0: no job starts");
    }
    let waited = key.waited_seconds.unwrap_or_default();
    if key.held() < limit {
        return match waited > STUCK {
            true => bad(
                "a slot is free, and no process gives it to a waiting job: is a dispatcher running?",
            ),
            false => fine("a slot has just become free"),
        };
    }
    let unserved = holders.iter().find(|holder| {
        !holder.is_claimed && !fleet.is_more && fleet.serving(&holder.queue_name).next().is_none()
    });
    if let (0, Some(holder)) = (key.claimed.count, unserved) {
        let queue = &holder.queue_name;
        return bad(&format!(
            "ready jobs hold all slots, and no worker serves {queue}"
        ));
    }
    let longest = holders.iter().filter(|holder| holder.is_claimed);
    let longest = longest.map(|holder| holder.seconds).fold(0.0, f64::max);
    match limit == 1 && longest > STUCK && waited >= longest {
        true => warning(&format!("its holder has run for {}", duration(longest))),
        false => fine("all slots are taken: jobs wait their turn"),
    }
}

/// Returns the sentence on top.
pub(crate) fn lead(now: Option<&KeysNow>) -> Markup {
    let Some(now) = now else {
        return Markup::default();
    };
    let lines = key_lines(now);
    let stuck = lines
        .iter()
        .filter(|line| line.rank == KeyRank::Bad)
        .count();
    let slow = lines
        .iter()
        .filter(|line| line.rank == KeyRank::Warning)
        .count();
    let mut text = match now.blocked.count {
        0 => "No job waits for a slot or for another job.".to_owned(),
        1 if !now.blocked.is_more => "1 job waits for a slot, or for another job.".to_owned(),
        _ => format!(
            "{} jobs wait for a slot, or for another job.",
            bounded(now.blocked)
        ),
    };
    let keys = |number: usize| if number == 1 { "key" } else { "keys" };
    if stuck > 0 {
        let (number, verb) = (count(stuck), if stuck == 1 { "stands" } else { "stand" });
        text.push_str(&format!(
            " <b class=\"bad\">{number} {} {verb} still.</b>",
            keys(stuck)
        ));
    } else if slow > 0 {
        text.push_str(&format!(
            " <b class=\"warn\">{} {} may need a look.</b>",
            count(slow),
            keys(slow)
        ));
    }
    Markup::trusted(text)
}

// --- The concurrency keys of one page, and what an address asks for ---

/// The keys that an address asks for.
#[derive(Debug, Clone)]
pub(crate) struct KeyFilter {
    /// The start of the keys that are shown; empty for all.
    pub(crate) prefix: String,
    /// True if only keys are shown for which jobs wait.
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
        crate::web::http::with_query("/limits", &pairs)
    }
}

pub(crate) fn read(conn: &mut Conn<'_>, search: &KeyFilter) -> WindlassResult<KeysNow> {
    let action = "look at the concurrency keys";
    let wanted = match search.is_waiting {
        true => KeysWanted::Waiting,
        false => KeysWanted::All,
    };
    let is_searched = !search.prefix.is_empty();
    let max_rows = if is_searched { SEARCHED } else { PAGE };
    let mut keys = keys::page(conn, wanted, &search.after, max_rows).during(action)?;
    let most = usize::try_from(max_rows).unwrap_or(usize::MAX);
    let is_more = keys.len() > most;
    keys.truncate(most);
    let mut reached = keys.last().map(|key| key.key.clone()).filter(|_| is_more);
    if is_searched {
        keys.retain(|key| key.key.starts_with(&search.prefix));
        // A key is found at once by its whole name.
        if search.after.is_empty() && keys.iter().all(|key| key.key != search.prefix) {
            let whole = keys::one(conn, &search.prefix).during(action)?;
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
    let holders = keys::holders(conn, &names).during(action)?;
    Ok(KeysNow {
        holders,
        keys,
        reached,
        fleet: Fleet::read(conn)?,
        blocked: totals::blocked(conn).during(action)?,
    })
}
