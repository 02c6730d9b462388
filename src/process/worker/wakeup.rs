//! The thread that receives notifications of new work and wakes the poller.

use crate::clock::RetryDelay;
use crate::db::conn::listening::Listener;
use crate::event::events::Event;
use crate::process::base::context::ProcessContext;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::stop::Stop;
use crossbeam_channel::Sender;
use std::time::Duration;

/// How soon a stop is noticed, and how long reopening a lost listener may take.
const WAIT: Duration = Duration::from_millis(200);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Runs until stopped. A missed notification costs one polling interval.
pub(crate) fn run(context: &ProcessContext, heartbeat: &Heartbeat, wake: &Sender<()>) {
    let stop = &context.stop;
    let mut backoff = RetryDelay::up_to(LONGEST_PAUSE);
    let mut is_down = false;
    while !stop.is_stopped() {
        let channel = heartbeat.channel();
        match context.database.listen(channel.as_deref()) {
            Ok(Listener::Polling) => {
                let _ = stop.channel().recv();
            }
            Ok(mut listener) => {
                backoff.reset();
                is_down = false;
                // Notifications from before it listened are lost.
                let _ = wake.try_send(());
                let is_current = || heartbeat.channel() == channel;
                hear(&mut listener, stop, wake, is_current);
                if !is_current() {
                    continue;
                }
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

/// Listens until stopped, until the connection is lost, or while the channel is current.
fn hear(listener: &mut Listener, stop: &Stop, wake: &Sender<()>, is_current: impl Fn() -> bool) {
    while !stop.is_stopped() && is_current() {
        match listener.wait(WAIT) {
            // A full channel already wakes the poller, also for this notification.
            Ok(true) => drop(wake.try_send(())),
            Ok(false) => {}
            Err(_) => return,
        }
    }
}
