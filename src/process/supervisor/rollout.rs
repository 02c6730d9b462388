//! Replaces the children of a supervisor one by one: each is stopped gracefully, and the next
//! follows when its successor is registered. Two are never down at once.

use crate::clock;
use crate::db::transition::prune;
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::process::base::session::Session;
use crate::process::supervisor::children::ChildProcess;
use std::time::{Duration, Instant};

/// The replacement of all children, while one is under way.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    under_way: Option<UnderWay>,
    /// True if another one was requested meanwhile.
    is_repeated: bool,
}

#[derive(Debug)]
struct UnderWay {
    /// The child that is being replaced.
    index: usize,
    step: RolloutStep,
}

#[derive(Debug, Clone, Copy)]
enum RolloutStep {
    /// Wait until all other children run, then stop this one.
    Stop,
    /// It was asked to stop, and is killed at the deadline.
    Stopping { deadline: Instant },
    /// Its successor is to start.
    Starting,
    /// The successor runs, and is to register.
    Registering {
        pid: u32,
        since: Instant,
        next_check: Instant,
    },
}

impl RolloutStep {
    fn registering(pid: u32) -> Self {
        let now = clock::instant();
        RolloutStep::Registering {
            pid,
            since: now,
            next_check: now,
        }
    }
}

/// The interval of the checks for the successor's registration.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A program that runs for this long without a registration counts as started: it may not be one of
/// Windlass.
const UNREGISTERED: Duration = Duration::from_secs(60);

impl Rollout {
    /// Starts to replace the children, or remembers to do so once more.
    pub(crate) fn request(&mut self, children: usize, subscriber: &Subscriber) {
        if self.under_way.is_some() {
            if !std::mem::replace(&mut self.is_repeated, true) {
                log::info!("another rolling restart was requested: it follows this one");
            }
            return;
        }
        subscriber.emit(&Event::RolloutStarted { children });
        self.under_way = Some(UnderWay {
            index: 0,
            step: RolloutStep::Stop,
        });
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Notes that a child could not be started. Children that are not being replaced may fail, too:
    /// they did before.
    pub(crate) fn note_failed_start(&mut self, index: usize, why: &str, subscriber: &Subscriber) {
        if matches!(&self.under_way, Some(now) if now.index == index
            && matches!(now.step, RolloutStep::Starting | RolloutStep::Registering { .. }))
        {
            self.give_up(why, subscriber);
        }
    }

    fn give_up(&mut self, why: &str, subscriber: &Subscriber) {
        *self = Rollout::default();
        subscriber.emit(&Event::RolloutStopped { why });
    }

    /// Does what is due. `most` is how long a child may take to stop.
    pub(crate) fn turn(
        &mut self,
        children: &mut [ChildProcess],
        session: &mut Session,
        most: Duration,
    ) {
        let Some(UnderWay { index, step }) = self.under_way.take() else {
            return;
        };
        let next = match children.get_mut(index) {
            None => return self.finish(children.len(), session.subscriber()),
            Some(_) => advance(children, index, step, session, most),
        };
        match next {
            Ok(Some(step)) => self.under_way = Some(UnderWay { index, step }),
            Ok(None) => {
                self.under_way = Some(UnderWay {
                    index: index + 1,
                    step: RolloutStep::Stop,
                });
            }
            Err(why) => self.give_up(&why, session.subscriber()),
        }
    }

    fn finish(&mut self, children: usize, subscriber: &Subscriber) {
        subscriber.emit(&Event::RolloutFinished { children });
        if std::mem::take(&mut self.is_repeated) {
            self.request(children, subscriber);
        }
    }
}

/// Returns the next step of a child, or `None` after the last one.
fn advance(
    children: &mut [ChildProcess],
    index: usize,
    step: RolloutStep,
    session: &mut Session,
    most: Duration,
) -> Result<Option<RolloutStep>, String> {
    let others = children.iter().enumerate();
    let others_run = others
        .filter(|(other, _)| *other != index)
        .all(|(_, child)| child.is_running());
    let child = &mut children[index];
    Ok(Some(match step {
        RolloutStep::Stop if !others_run => RolloutStep::Stop,
        RolloutStep::Stop => {
            child.stop();
            RolloutStep::Stopping {
                deadline: clock::deadline(most),
            }
        }
        RolloutStep::Stopping { .. } if !child.is_stopping() => RolloutStep::Starting,
        RolloutStep::Stopping { deadline } => {
            if clock::instant() >= deadline {
                child.kill();
            }
            RolloutStep::Stopping { deadline }
        }
        RolloutStep::Starting => match child.pid() {
            None => RolloutStep::Starting,
            Some(pid) => RolloutStep::registering(pid),
        },
        RolloutStep::Registering { pid, .. } if child.pid() != Some(pid) => {
            return Err(format!(
                "the new child {pid} ended before it was registered"
            ));
        }
        RolloutStep::Registering { next_check, .. } if clock::instant() < next_check => step,
        RolloutStep::Registering { pid, since, .. } => {
            if is_registered(child, session) || since.elapsed() >= UNREGISTERED {
                return Ok(None);
            }
            let next_check = clock::instant() + CHECK_INTERVAL;
            RolloutStep::Registering {
                pid,
                since,
                next_check,
            }
        }
    }))
}

/// Returns whether a process of the child is registered.
fn is_registered(child: &ChildProcess, session: &mut Session) -> bool {
    let token = child.token().unwrap_or_default();
    let found = session.run("find a child's processes", |conn| {
        prune::of_child(conn, token)
    });
    found.is_ok_and(|found| !found.is_empty())
}
