//! Folds the history once a minute.

use crate::clock;
use crate::db::transition::fold::FoldWhen;
use crate::process::base::context::ProcessContext;
use crate::process::base::history::folding::fold_due;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use std::time::Duration;

/// How often it looks. The first supervisor that looks in a minute of the database's clock folds.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// The thread of a supervisor that folds the history.
pub(crate) struct FoldTask {
    session: Session,
    stop: Stop,
}

impl FoldTask {
    pub(crate) fn new(context: &ProcessContext) -> Self {
        FoldTask {
            session: Session::new(context),
            stop: context.stop.clone(),
        }
    }

    pub(crate) fn run(mut self) {
        while !self.stop.is_stopped() {
            let until = clock::deadline(clock::NEVER);
            let (when, stop) = (FoldWhen::OnceAMinute, &self.stop);
            let folded = fold_due(&mut self.session, when, stop, until);
            let pause = folded.map_or_else(|delay| delay, |_| clock::jittered(LOOK_EVERY));
            self.stop.wait(pause);
        }
    }
}
