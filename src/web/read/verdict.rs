//! The verdict about a queue, in HTML.

use crate::web::show::markup::{Markup, state, verdict};
use crate::web::show::times::duration;
use std::time::Duration;

pub(crate) use crate::admin::now::QueueVerdict;

impl QueueVerdict {
    /// Returns it in HTML.
    pub(crate) fn markup(self) -> Markup {
        match self {
            QueueVerdict::Late { promise } => {
                verdict("bad", &format!("late: promises {}", promised(promise)))
            }
            QueueVerdict::Unserved => verdict("warn", "no worker serves it"),
            QueueVerdict::Silent => verdict("bad", "its workers are dead"),
            QueueVerdict::Quiet => verdict("warn", "its workers are quiet or stopping"),
            QueueVerdict::Paused => state("pause ink", "paused"),
            QueueVerdict::InTime { promise } => {
                verdict("ok", &format!("in time: promises {}", promised(promise)))
            }
            QueueVerdict::Unjudged => Markup::default(),
            QueueVerdict::Empty => verdict("ok", "empty"),
        }
    }
}

fn promised(promise: Duration) -> String {
    duration(promise.as_secs_f64())
}
