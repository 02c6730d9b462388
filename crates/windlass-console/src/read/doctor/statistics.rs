//! Checks that the history is added up, and that it can be read.

use crate::read::doctor::scope::{CheckScope, Finding, Verdict, finding};
use diesel::QueryResult;
use windlass::internal::db::query::history::{self, LookBack};
use windlass::internal::db::table::history::deltas::{self, FoldBacklog};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

/// In seconds. With a supervisor or a worker, the history is folded sooner.
const BEHIND: f64 = 300.0;

/// Checks the history. `is_served` is whether a supervisor or a worker of Windlass has been running for
/// so long that it has folded by now.
pub(crate) fn check(conn: &mut Conn<'_>, is_served: bool, scope: CheckScope) -> Result<Finding> {
    const CHECK: &str = "statistics";
    match state(conn, scope).during("look at the history") {
        Ok((backlog, unreadable)) => {
            let (verdict, says) = judge(&backlog, unreadable, is_served);
            Ok(finding(CHECK, verdict, says))
        }
        Err(error) => scope.unchecked(CHECK, error),
    }
}

fn state(conn: &mut Conn<'_>, scope: CheckScope) -> QueryResult<(FoldBacklog, usize)> {
    let back = match scope {
        CheckScope::Newest => LookBack::NewestRows,
        CheckScope::All | CheckScope::AllInTime => LookBack::TwoDays,
    };
    Ok((deltas::backlog(conn)?, history::unreadable(conn, back)?))
}

fn judge(backlog: &FoldBacklog, unreadable: usize, is_served: bool) -> (Verdict, String) {
    let mut says = Vec::new();
    if unreadable > 0 {
        says.push(format!(
            "{unreadable} rows of the history cannot be read and are skipped: a newer version of Windlass \
             wrote them, or something else changed them; run the newer version everywhere, or delete \
             them from `windlass_stats`, `windlass_stats_series` and `windlass_stats_deltas`"
        ));
    }
    let oldest = backlog.oldest.filter(|oldest| *oldest > BEHIND);
    // Never is an age of decades.
    let folded = backlog
        .folded
        .filter(|folded| *folded > BEHIND && is_served);
    if oldest.is_some() && unreadable == 0 || folded.is_some() {
        let rows = match backlog.unfolded {
            10_000.. => "10,000 or more".to_owned(),
            rows => rows.to_string(),
        };
        let since = match oldest.or(folded) {
            Some(seconds) if seconds < 1e9 => format!("for {seconds:.0} s"),
            _ => "yet".to_owned(),
        };
        says.push(format!(
            "the history was not folded {since}: {rows} contributions wait; run a supervisor, or look at \
             the logs of those that run"
        ));
    }
    if says.is_empty() {
        return (
            Verdict::Fine,
            "the history is up to date and can be read".to_owned(),
        );
    }
    (Verdict::Warning, says.join("; "))
}
