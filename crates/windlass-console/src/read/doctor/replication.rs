//! Reports which commits are lost if the server is lost and a standby takes over.

use crate::read::doctor::scope::{CheckScope, Finding, Verdict, finding};
use crate::read::sql::doctor::{self, Replication};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

const CHECK: &str = "replication";

/// Returns nothing where there is nothing to say: no standby, and commits that reach the disk.
pub(crate) fn check(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Option<Finding>> {
    let found = doctor::replication(conn).during("look at the standbys");
    let found = scope.or_nothing(found)?;
    let judged = found.as_ref().and_then(judge);
    Ok(judged.map(|(verdict, says)| finding(CHECK, verdict, says)))
}

fn judge(found: &Replication) -> Option<(Verdict, String)> {
    let Replication {
        standbys,
        synchronous,
        hidden,
        commit,
    } = found;
    if commit == "off" {
        let says = "`synchronous_commit` is `off`: a crash of the server loses what was acknowledged in its last \
             moments, jobs and outcomes; set it to `on`";
        return Some((Verdict::Warning, says.to_owned()));
    }
    let count = match standbys {
        0 => return None,
        1 => "a standby is connected".to_owned(),
        more => format!("{more} standbys are connected"),
    };
    let rest = if *hidden > 0 {
        "this role may not see whether one confirms commits: `GRANT pg_read_all_stats` to it"
            .to_owned()
    } else if *synchronous == 0 {
        "none confirms commits: a failover loses what it had not received, jobs that were acknowledged and outcomes \
         of jobs, which run again; `synchronous_standby_names` prevents that"
            .to_owned()
    } else if commit == "local" {
        "`synchronous_commit` is `local`, so that no commit waits for one: a failover loses what it had not received; \
         set it to `on`"
            .to_owned()
    } else {
        "one that is synchronous confirms each commit: a failover to it loses nothing that was acknowledged".to_owned()
    };
    Some((Verdict::Fine, format!("{count}; {rest}")))
}
