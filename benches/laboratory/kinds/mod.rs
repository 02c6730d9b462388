//! One file for each kind of work, or for some that are alike.

mod backlog;
mod batches;
mod enqueue;
mod idle;
mod insert;
mod limit;
mod noop;
mod outcomes;
mod pickup;
mod rates;
mod recurring;
mod scale;
mod scheduled;
mod shares;
mod sleep;
mod unique;
mod urgent;
mod waits;
mod web;

use crate::laboratory::comparison::Comparison;
use crate::laboratory::kind::Kind;
use crate::laboratory::run::BenchRun;

/// Returns what is measured for a kind.
pub(crate) fn comparisons(kind: Kind, run: &BenchRun) -> Vec<Comparison> {
    match kind {
        Kind::Noop => noop::comparisons(run),
        Kind::Insert => insert::insert(run),
        Kind::Step => insert::step(run),
        Kind::FinishIn => insert::finish_in(run),
        Kind::Sleep => sleep::comparisons(run),
        Kind::Retry => outcomes::retry(run),
        Kind::Fail => outcomes::fail(run),
        Kind::Snooze => outcomes::snooze(run),
        Kind::Discard => outcomes::discard(run),
        Kind::Result => outcomes::result(run),
        Kind::AtMostOnce => outcomes::at_most_once(run),
        Kind::Limit100x5 => limit::hundred_keys(run),
        Kind::Limit1 => limit::one_key(run),
        Kind::Limit1Among => limit::among_others(run),
        Kind::LimitEnqueue => limit::enqueue(run),
        Kind::QuotaEnqueue => limit::with_quota(run),
        Kind::Rates => rates::comparisons(run),
        Kind::Shares => shares::comparisons(run),
        Kind::Unique => unique::comparisons(run),
        Kind::Batches => batches::comparisons(run),
        Kind::Waits => waits::comparisons(run),
        Kind::Scheduled => scheduled::comparisons(run),
        Kind::Recurring => recurring::comparisons(run),
        Kind::Enqueue => enqueue::comparisons(run),
        Kind::Pickup => pickup::comparisons(run),
        Kind::Urgent => urgent::comparisons(run),
        Kind::Backlog => backlog::comparisons(run),
        Kind::Scale => scale::comparisons(run),
        Kind::Idle => idle::comparisons(run),
        Kind::Web => web::comparisons(run),
    }
}
