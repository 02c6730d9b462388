//! Functions for types of arguments that a worker shares with the programs that enqueue them.

use crate::db::model::new_row::{OnConflict, UniqueScope};
use crate::job::concurrency::{Concurrency, LimitConflict};
use crate::job::function::Function;
use crate::job::policy::backoff::Backoff;
use crate::job::policy::{Delivery, Policy};
use crate::job::rate::Rate;
use windlass_enqueue as shared;
use windlass_enqueue::JobArgs;

impl<A: JobArgs> Function<A> {
    /// Creates a class for a type of arguments of the crate `windlass-enqueue`, which programs without Windlass enqueue.
    ///
    /// It has what the type says: its name, queue, priority, policy, version, secrets and maximum size and, for each job, its
    /// unique id, concurrency limit and rates. Register it with the function that performs the jobs:
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use serde::{Deserialize, Serialize};
    /// use windlass::{Function, Registry};
    /// use windlass_enqueue::{JobArgs, Policy};
    ///
    /// // In a crate that the web service and the worker share:
    /// #[derive(Serialize, Deserialize)]
    /// struct Welcome { email: String }
    ///
    /// impl JobArgs for Welcome {
    ///     const NAME: &'static str = "send_welcome";
    ///     fn policy() -> Policy { Policy::new().max_attempts(5) }
    ///     fn unique_id(&self) -> Option<String> { Some(format!("welcome/{}", self.email)) }
    /// }
    ///
    /// // In the worker:
    /// const SEND_WELCOME: Function<Welcome> = Function::of_args();
    /// let registry = Registry::new().function(SEND_WELCOME, |args, _cx| {
    ///     println!("welcome, {}", args.email);
    ///     Ok(())
    /// });
    ///
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// let ada = Welcome { email: "ada@example.com".into() };
    /// SEND_WELCOME.enqueue(&mut conn, &ada)?; // or by `windlass_enqueue`, from any program
    /// # windlass::testing::drain(&mut conn, &registry)?.assert_all_finished(1);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    #[must_use]
    pub const fn of_args() -> Self {
        let mut function = Function::new(A::NAME);
        function.queue = A::QUEUE;
        function.priority = A::PRIORITY;
        function.redact = A::REDACT;
        function.max_arguments = A::MAX_ARGUMENTS;
        function.version = A::VERSION;
        function.policy = || A::policy().into();
        function.limits = |arguments: &A| {
            let limit = arguments.concurrency().map(Concurrency::from);
            let rates = arguments.rates().into_iter().map(Rate::from);
            (arguments.unique_id(), limit, rates.collect())
        };
        function
    }
}

impl From<shared::Policy> for Policy {
    fn from(shared: shared::Policy) -> Self {
        let mut policy = Policy::new();
        policy.max_attempts = shared.max_attempts;
        policy.max_crashes = shared.max_crashes;
        policy.delivery = shared.delivery.map(|delivery| match delivery {
            shared::Delivery::AtMostOnce => Delivery::AtMostOnce,
            shared::Delivery::AtLeastOnce => Delivery::AtLeastOnce,
        });
        policy.backoff = shared.backoff.map(|backoff| match backoff {
            shared::Backoff::Fixed(delay) => Backoff::Fixed(delay),
            shared::Backoff::Exponential { first, cap } => Backoff::Exponential { first, cap },
        });
        policy.keep_result = shared.keep_result;
        policy.unique_scope = shared.unique_scope.map(|scope| match scope {
            shared::UniqueScope::WhileWaiting => UniqueScope::WhileWaiting,
            shared::UniqueScope::UntilResultExpires => UniqueScope::UntilResultExpires,
            shared::UniqueScope::UntilFinished => UniqueScope::UntilFinished,
        });
        policy.on_conflict = shared.on_conflict.map(|on_conflict| match on_conflict {
            shared::OnConflict::Refuse => OnConflict::Refuse,
            shared::OnConflict::Replace => OnConflict::Replace,
            shared::OnConflict::RunAgain => OnConflict::RunAgain,
            shared::OnConflict::Existing => OnConflict::Existing,
        });
        if let Some(time) = shared.timeout {
            policy = policy.timeout(time);
        }
        if let Some(time) = shared.expires_in {
            policy = policy.expires_in(time);
        }
        if let Some(time) = shared.retry_for {
            policy = policy.retry_for(time);
        }
        policy
    }
}

impl From<shared::Concurrency> for Concurrency {
    fn from(shared: shared::Concurrency) -> Self {
        let mut limit = Concurrency::new(shared.key).limit(shared.limit);
        if let Some(group) = shared.group {
            limit = limit.group(group);
        }
        if shared.on_conflict == shared::LimitConflict::Discard {
            limit = limit.on_conflict(LimitConflict::Discard);
        }
        if shared.ordered {
            limit.ordered()
        } else {
            limit
        }
    }
}
