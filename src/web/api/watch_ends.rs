//! The thread that sees which jobs have ended: one statement asks for all that are waited for.

use crate::clock;
use crate::db::query::pages::job_lines;
use crate::error::{Doing as _, Result};
use crate::process::base::stop;
use crate::web::reads::connections::Writers;
use crate::web::site::Site;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the jobs that are waited for are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// After a failed look.
const REST: Duration = Duration::from_secs(1);

/// Starts the thread that looks; it ends with the server.
pub(crate) fn start(site: &Arc<Site>) -> Result<JoinHandle<()>> {
    let site = Arc::clone(site);
    stop::spawn("web-waits", move || {
        let mut writers = Writers::new(&site);
        while let Some(jobs) = site.waits.jobs() {
            let mut pause = (!jobs.is_empty()).then_some(LOOK);
            for (database, jobs) in jobs {
                if let Err(error) = look(&site, &mut writers, database, &jobs) {
                    log::debug!("web: cannot see which jobs have ended: {error}");
                    pause = Some(REST);
                }
            }
            // Between two looks, another wait changes nothing.
            match pause {
                Some(pause) => clock::nap(pause),
                None => drop(site.waits.woken.recv()),
            }
        }
    })
}

fn look(site: &Site, writers: &mut Writers, database: usize, jobs: &[i64]) -> Result<()> {
    let open = writers.look(database, |conn| {
        job_lines::not_ended(conn, jobs).doing("see which jobs have ended")
    })?;
    let open: BTreeSet<i64> = open.into_iter().collect();
    let ended = jobs.iter().copied().filter(|job| !open.contains(job));
    site.waits.ended(database, ended);
    Ok(())
}
