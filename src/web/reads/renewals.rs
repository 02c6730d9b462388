//! The thread that reads anew what pages share, so that no page waits for it.

use crate::error::Result;
use crate::process::base::stop;
use crate::web::reads::connections::Readers;
use crate::web::reads::shared::Renewal;
use crate::web::site::Site;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// How many renewals wait at most. One that finds no place is asked for again by a later page.
const QUEUE: usize = 64;

/// Starts the thread. It ends when all senders are dropped.
pub(crate) fn start(site: &Arc<Site>) -> Result<(Sender<Renewal>, JoinHandle<()>)> {
    let (sender, queue) = bounded(QUEUE);
    let site = Arc::clone(site);
    let thread = stop::spawn("web-renew", move || run(&site, &queue))?;
    Ok((sender, thread))
}

fn run(site: &Arc<Site>, queue: &Receiver<Renewal>) {
    let mut readers = Readers::new(site);
    for renewal in queue {
        if site.hub.is_stopped() {
            return;
        }
        let renewed = catch_unwind(AssertUnwindSafe(|| renewal.run(&mut readers, site)));
        if renewed.is_err() {
            log::error!("web: reading what pages share panicked");
        }
    }
}
