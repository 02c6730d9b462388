//! The jobs of a small shop, which end as each is asked to.

use crate::support::wait::DEADLINE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;
use windlass::{Backoff, Context, Interrupted, Job, JobError, JobResult, NewJob, Policy, Registry};

/// True once jobs that wait may end.
pub type Open = AtomicBool;

/// The way in which a job ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Finish,
    Refused(String),
    Invalid(String),
    Panic,
    Retry,
    Discard,
    Wait,
}

#[derive(Debug, Error)]
#[error("connect to {0}: connection refused")]
struct ConnectError(String);

#[derive(Debug, Error)]
#[error("{0}")]
struct ValidationError(String);

fn end(how: How, cx: &Context<'_, Open>) -> JobResult<Value> {
    match how {
        How::Finish => Ok(json!({ "rows": 1204 })),
        How::Refused(host) => Err(ConnectError(host).into()),
        How::Invalid(what) => Err(JobError::from(ValidationError(what)).fail()),
        How::Panic => panic!("index out of bounds: the len is 3 but the index is 7"),
        How::Retry => {
            let error = JobError::from(ConnectError("stock.example:443".to_owned()));
            Err(error.retry_after(Duration::from_secs(3_600)))
        }
        How::Discard => {
            Err(JobError::from(ValidationError("the customer has left".to_owned())).discard())
        }
        How::Wait => wait(cx),
    }
}

/// Does some steps, and waits until it may end.
fn wait(cx: &Context<'_, Open>) -> JobResult<Value> {
    let mut conn = cx.connection()?;
    for (number, part) in ["read the orders", "add them up"].iter().enumerate() {
        cx.step(&mut conn, part, |_| Ok(number))?;
        cx.log(format!("{part}: done"));
    }
    drop(conn);
    cx.progress(62.0, "page 31 of 50");
    let start = Instant::now();
    while !cx.state().load(Ordering::SeqCst) {
        match cx.sleep(Duration::from_millis(50)) {
            Ok(()) => {}
            Err(Interrupted::Cancelled) => return Err(Interrupted::Cancelled.into()),
            Err(other) => return Err(other.into()),
        }
        assert!(start.elapsed() < 10 * DEADLINE, "no test has ended this");
    }
    Ok(Value::Null)
}

macro_rules! work {
    ($($name:ident on $queue:literal),+ $(,)?) => {
        $(
            #[derive(Debug, Clone, Serialize, Deserialize)]
            struct $name {
                how: How,
                customer: u32,
                token: String,
            }

            impl Job for $name {
                const NAME: &'static str = stringify!($name);
                const QUEUE: &'static str = $queue;
                const REDACT: &'static [&'static str] = &["token"];
                type State = Open;
                type Output = Value;

                fn policy() -> Policy {
                    let soon = Backoff::Fixed(Duration::from_millis(1));
                    Policy::new().max_attempts(2).backoff(soon).keep_result(Duration::from_secs(86_400))
                }

                fn perform(self, cx: &Context<'_, Open>) -> JobResult<Value> {
                    end(self.how, cx)
                }
            }
        )+

        /// All classes.
        pub fn registry(open: &std::sync::Arc<Open>) -> Registry {
            Registry::new()$(.register::<$name>(std::sync::Arc::clone(open)))+
        }

        /// A job of a class, with arguments of which one is secret.
        pub fn job(class: &str, how: How, customer: u32) -> NewJob {
            let token = SECRET.to_owned();
            match class {
                $(stringify!($name) => NewJob::new(&$name { how, customer, token }),)+
                _ => panic!("no class {class}"),
            }
            .unwrap()
        }
    };
}

/// In the arguments of every job, and on no page.
pub const SECRET: &str = "tok_5ecret_9f3a";

work!(
    SendWelcome on "mail",
    ChargeCard on "payments",
    ImportCatalog on "imports",
    BuildReport on "reports",
    SyncStock on "stock",
);
