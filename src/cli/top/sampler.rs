//! The thread that reads. It answers when it can: a database that gives no answer holds up nothing
//! else.

use crate::cli::top::look::{TopFindings, TopLook};
use crate::cli::top::reader::LookReader;
use crate::error::Result;
use crate::process::base::stop;
use crossbeam_channel::{Receiver, Sender, bounded};

/// What is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookRequest {
    Look,
    Findings,
}

/// What was read, or why the database is away.
#[derive(Debug, Clone)]
pub(crate) enum LookAnswer {
    Look(Box<TopLook>),
    Findings(TopFindings),
    Away(String),
}

/// The thread, by its channels.
#[derive(Debug)]
pub(crate) struct Sampler {
    requests: Sender<LookRequest>,
    answers: Receiver<LookAnswer>,
}

/// How many requests and answers may be under way: one of each kind.
const UNDER_WAY: usize = 2;

impl Sampler {
    /// Starts the thread. It ends when this is dropped; nothing waits for it.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start(mut reader: LookReader) -> Result<Self> {
        let (requests, incoming) = bounded(UNDER_WAY);
        let (outgoing, answers) = bounded(UNDER_WAY);
        stop::spawn("top-reader", move || {
            for request in &incoming {
                let answer = match request {
                    LookRequest::Look => reader.look().map(|look| LookAnswer::Look(Box::new(look))),
                    LookRequest::Findings => reader.findings().map(LookAnswer::Findings),
                };
                if outgoing
                    .send(answer.unwrap_or_else(LookAnswer::Away))
                    .is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Sampler { requests, answers })
    }

    /// Asks for something. Returns whether the thread could take the request.
    pub(crate) fn ask(&self, request: LookRequest) -> bool {
        self.requests.try_send(request).is_ok()
    }

    /// Returns an answer, if there is one.
    pub(crate) fn answer(&self) -> Option<LookAnswer> {
        self.answers.try_recv().ok()
    }
}
