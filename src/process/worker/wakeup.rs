//! The thread that hears of new work and wakes the poller.

use crate::clock::Backoff;
use crate::db::conn::wakeup::Listener;
use crate::event::events::Event;
use crate::process::base::context::ProcessContext;
use crate::process::base::stop::Stop;
use crossbeam_channel::Sender;
use std::time::Duration;

/// How soon a stop is noticed, and how long a lost listener may take to be
/// opened again.
const WAIT: Duration = Duration::from_millis(200);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Runs until stopped. Whatever it cannot hear costs a polling interval.
pub(crate) fn run(context: &ProcessContext, channel: Option<&str>, wake: &Sender<()>) {
    let stop = &context.stop;
    let mut backoff = Backoff::up_to(LONGEST_PAUSE);
    let mut is_down = false;
    while !stop.is_stopped() {
        match context.database.listen(channel) {
            Ok(mut listener) => {
                backoff.reset();
                is_down = false;
                // What happened before it listened, it has not heard.
                let _ = wake.try_send(());
                hear(&mut listener, stop, wake);
            }
            Err(error) if !is_down => {
                is_down = true;
                context.subscriber.emit(&Event::Unreachable {
                    action: "listen for new work",
                    reason: &error.to_string(),
                });
            }
            Err(_) => {}
        }
        stop.wait(backoff.delay());
    }
}

/// Until stopped or until the connection is lost.
fn hear(listener: &mut Listener, stop: &Stop, wake: &Sender<()>) {
    while !stop.is_stopped() {
        match listener.wait(WAIT) {
            // Full: the poller has yet to look, which does for this one too.
            Ok(true) => drop(wake.try_send(())),
            Ok(false) => {}
            Err(_) => return,
        }
    }
}
