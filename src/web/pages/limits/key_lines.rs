//! The rows of the table of concurrency keys.

use crate::admin::now::Fleet;
use crate::db::query::load::keys::{KeyInUse, SlotHolder};
use crate::db::query::load::totals::CappedCount;
use crate::web::pages::limits::keys_now::KeysNow;
use crate::web::show::chart::slots::slots;
use crate::web::show::markup::{Markup, verdict};
use crate::web::show::numbers::{bounded, count};
use crate::web::show::times::duration;

/// How bad it is, by which the rows are sorted.
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
    /// How many hold one beside these.
    pub(crate) more_holders: u64,
    rank: KeyRank,
}

/// The most holders that are named.
const NAMED: usize = 3;

/// In seconds. A free slot is given to a waiting job within seconds.
const STUCK: f64 = 60.0;

/// Returns the keys, the worst first.
pub(crate) fn of(now: &KeysNow) -> Vec<KeyLine> {
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
    let lines = of(now);
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
