//! Enqueueing over HTTP, and asking what became of a job.

mod batches;
mod described;
mod enqueue;
mod faults;
mod limits;
mod outages;
mod outcome;
mod requests;
mod vectors;

use super::client::{Ask, Reply};
use described::assert_described;
use serde_json::Value;
use windlass_console::web::RunningServer;

/// A request with a token, whose response must be one of those that the description has.
struct Program<'s> {
    server: &'s RunningServer,
    token: Option<String>,
}

impl<'s> Program<'s> {
    /// On the host itself, while there are no tokens.
    fn local(server: &'s RunningServer) -> Self {
        Program {
            server,
            token: None,
        }
    }

    fn with_token(server: &'s RunningServer, token: &str) -> Self {
        Program {
            server,
            token: Some(token.to_owned()),
        }
    }

    fn ask(&self, method: &str, path: &str) -> Ask {
        let ask = Ask::new(self.server.address(), method, path);
        match &self.token {
            Some(token) => ask.header("Authorization", &format!("Bearer {token}")),
            None => ask,
        }
    }

    fn post(&self, path: &str, body: &str) -> Answer {
        Answer::of("post", path, self.ask("POST", path).json(body))
    }

    fn get(&self, path: &str) -> Answer {
        Answer::of("get", path, self.ask("GET", path))
    }
}

/// A response in JSON.
#[derive(Debug)]
struct Answer {
    reply: Reply,
    json: Value,
}

impl Answer {
    fn of(method: &str, path: &str, ask: Ask) -> Self {
        Self::checked(method, path, ask.send())
    }

    fn checked(method: &str, path: &str, reply: Reply) -> Self {
        let json = serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("{reply:?}"));
        assert_described(method, path, &reply, &json);
        Answer { reply, json }
    }

    fn status(&self) -> u16 {
        self.reply.status
    }

    /// The id of the job that was enqueued or found.
    #[track_caller]
    fn id(&self) -> i64 {
        self.json["id"]
            .as_i64()
            .unwrap_or_else(|| panic!("{self:?}"))
    }

    /// Checks that it was refused with this status, and returns why.
    #[track_caller]
    fn refused(&self, status: u16) -> &str {
        assert_eq!(self.status(), status, "{self:?}");
        self.json["detail"].as_str().unwrap()
    }
}
