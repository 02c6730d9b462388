//! The classes that a program performs, and how. Generic types end here.

use crate::db::model::extras::FIRST_VERSION;
use crate::db::model::new_row::rates_to_column;
use crate::db::table::classes::NewClass;
use crate::error::{Error, Result};
use crate::job::arguments::ArgumentsReader;
use crate::job::around::{self, Around, JobRan, NO_STATE, Next, caught};
use crate::job::class::Job;
use crate::job::context::{Context, Run};
use crate::job::error::{JobError, JobOutput, JobResult};
use crate::job::function::Function;
use crate::job::new_job::NewJob;
use crate::job::output::{MAX_OUTPUT, as_output};
use crate::job::policy::Policy;
use crate::job::policy::quota::{self, Quota};
use crate::job::rate;
use crate::job::run_log::Cover;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Performs one job from its arguments and returns its result as JSON.
type Perform = dyn Fn(&str, &Run) -> Result<JobOutput, JobError> + Send + Sync;

/// Creates a job from its arguments as JSON text, of its type's version or of the given one.
type NewFromText = dyn Fn(&str, Option<u32>) -> Result<NewJob, String> + Send + Sync;

/// A job type without its generic parameter.
struct Class {
    perform: Box<Perform>,
    policy: Policy,
    retry_in: fn(u32, &JobError) -> Option<Duration>,
    new_job: Box<NewFromText>,
    queue: &'static str,
    priority: i32,
    max_arguments: usize,
    redact: &'static [&'static str],
    version: u32,
    internal: bool,
    quota: Option<Quota>,
}

/// The job types that a program performs, and the state that each type borrows.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult, Registry};
/// # #[derive(Serialize, Deserialize)] struct Import;
/// # impl Job for Import {
/// #     const NAME: &'static str = "import";
/// #     type State = String; type Output = ();
/// #     fn perform(self, _: &Context<'_, String>) -> JobResult { Ok(()) }
/// # }
/// let registry = Registry::new().register::<Import>("state of the application".to_string());
/// assert!(registry.classes().any(|class| class == "import"));
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    classes: BTreeMap<String, Arc<Class>>,
    defaults: Policy,
    /// The outermost first.
    around: Vec<Arc<Around>>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers job type `J` under its name and its aliases.
    ///
    /// Its jobs borrow `state`, which is a value or a shared `Arc`.
    ///
    /// # Panics
    /// If another type has one of the names. This is a mistake in the program, which should show
    /// before any job runs.
    #[must_use]
    pub fn register<J: Job>(mut self, state: impl Into<Arc<J::State>>) -> Self {
        let state = state.into();
        let class = Class {
            perform: Box::new(move |arguments, run| perform::<J>(arguments, &state, run)),
            policy: without_extras(J::policy()),
            retry_in: J::retry_in,
            new_job: Box::new(new_job::<J>),
            queue: J::QUEUE,
            priority: J::PRIORITY,
            max_arguments: J::MAX_ARGUMENTS,
            redact: J::REDACT,
            version: J::VERSION,
            internal: J::INTERNAL,
            quota: J::class_quota(),
        };
        self.insert(J::NAME, J::ALIASES, class);
        self
    }

    /// Registers a function as a class of jobs. See [`Function`], which also enqueues them.
    ///
    /// `body` receives the arguments of a job and its context. What it returns is the result of the
    /// job; an error or a panic is a failed attempt. State is what `body` captures.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use windlass::{Function, Registry, testing};
    ///
    /// const GREET: Function<String> = Function::new("greet");
    ///
    /// let registry = Registry::new().function(GREET, |name, cx| {
    ///     println!("attempt {}: hello, {name}", cx.attempt());
    ///     Ok(())
    /// });
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// GREET.enqueue(&mut conn, &"Ada".to_owned())?;
    /// testing::drain(&mut conn, &registry)?.assert_all_finished(1);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Panics
    /// If another type or function has one of the names, as for [`register`](Self::register).
    #[must_use]
    pub fn function<A, T, F>(mut self, function: Function<A>, body: F) -> Self
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        T: Serialize,
        F: Fn(A, &Context<'_, ()>) -> JobResult<T> + Send + Sync + 'static,
    {
        let class = Class {
            perform: Box::new(move |arguments, run| {
                let cover = Cover::new(arguments, function.redact);
                let version = run.policy.arguments_version();
                let arguments = function.reader().read(arguments, version)?;
                let output = body(arguments, &Context::new(&NO_STATE, run).covered(cover))?;
                as_output(run, MAX_OUTPUT, &output)
            }),
            policy: without_extras((function.policy)()),
            retry_in: |_, _| None,
            new_job: Box::new(move |arguments, version| function.job_of_text(arguments, version)),
            queue: function.queue,
            priority: function.priority,
            max_arguments: function.max_arguments,
            redact: function.redact,
            version: function.version,
            internal: false,
            quota: None,
        };
        self.insert(function.name, function.aliases, class);
        self
    }

    fn insert(&mut self, name: &str, aliases: &[&str], class: Class) {
        let class = Arc::new(class);
        for name in std::iter::once(&name).chain(aliases) {
            let taken = self.classes.insert((*name).to_owned(), Arc::clone(&class));
            assert!(taken.is_none(), "two job types are registered as `{name}`");
        }
    }

    /// Runs a function around every job of this registry: for tracing spans, timers, thread-locals.
    ///
    /// It is called on the job's thread with the job's context, and must call [`Next::run`], which
    /// performs the job and returns what the function has to return. It sees the outcome, and cannot
    /// change it. The function that was added first is outermost. It also runs in
    /// [`testing::drain`](crate::testing::drain).
    ///
    /// If the function panics, the attempt has failed, as if the job had panicked. This holds after
    /// the job has returned too, unless the job was finished in its own transaction. Its time counts
    /// towards the [`timeout`](Policy::timeout).
    ///
    /// ```
    /// use std::time::Instant;
    /// use windlass::Registry;
    /// use windlass::hooks::JobEnd;
    ///
    /// let registry = Registry::new().around(|cx, next| {
    ///     let start = Instant::now();
    ///     let ran = next.run();
    ///     let end = match ran.outcome() {
    ///         JobEnd::Finished(_) => "finished",
    ///         JobEnd::Interrupted(_) => "interrupted",
    ///         _ => "not finished",
    ///     };
    ///     println!("{} {}: {end} after {:?}", cx.class_name(), cx.job_id(), start.elapsed());
    ///     ran
    /// });
    /// # let _ = registry;
    /// ```
    #[must_use]
    pub fn around<F>(mut self, function: F) -> Self
    where
        F: for<'n> Fn(&Context<'_, ()>, Next<'n>) -> JobRan<'n> + Send + Sync + 'static,
    {
        self.around.push(Arc::new(function));
        self
    }

    /// Sets the policy for values that neither the enqueue nor the job type sets: attempts,
    /// back-off and everything else that a worker decides.
    ///
    /// Delivery and the crash limit are not taken from here. A supervisor needs them, so they are
    /// stored with each job when it is enqueued.
    ///
    /// ```
    /// use windlass::{Policy, Registry};
    /// let registry = Registry::new().defaults(Policy::new().max_attempts(5));
    /// # let _ = registry;
    /// ```
    #[must_use]
    pub fn defaults(mut self, policy: Policy) -> Self {
        self.defaults = without_extras(policy);
        self
    }

    /// Returns the names and aliases of all registered types, sorted.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }

    /// Returns the version of the arguments of each class that does not have the first one.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&str, u32)> {
        let all = self.classes.iter();
        let newer = all.filter(|(_, class)| class.version > FIRST_VERSION);
        newer.map(|(name, class)| (name.as_str(), class.version))
    }

    /// Returns the description of each type that is stored for other programs, under each of its
    /// names.
    pub(crate) fn described(&self) -> Vec<NewClass> {
        let describe = |(name, class): (&String, &Arc<Class>)| {
            let redact = serde_json::json!(class.redact).to_string();
            // A name that is not valid is an error of each enqueue in Rust.
            let quota = quota::column(class.quota.as_ref(), name).ok().flatten();
            let quota = quota.and_then(|quota| quota.to_column());
            let (policy, rates) = class.policy.clone().without_rates();
            // Rates that are not valid are an error of each enqueue in Rust, too.
            let rates = rate::of_class(&rates, name).ok();
            let column = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
            NewClass {
                class_name: name.clone(),
                queue_name: class.queue.to_owned(),
                redact,
                internal: class.internal,
                quota,
                priority: class.priority,
                max_attempts: policy.max_attempts.map(column),
                max_crashes: policy.max_crashes.map(column),
                at_most_once: policy.is_at_most_once().then_some(true),
                max_arguments: i64::try_from(class.max_arguments).ok(),
                policy: policy.to_column(),
                rates: rates.and_then(|rates| rates_to_column(&rates)),
            }
        };
        self.classes.iter().map(describe).collect()
    }

    /// Returns `None` if no type of this name is registered.
    pub(crate) fn perform(
        &self,
        arguments: &str,
        run: &Run,
    ) -> Option<Result<JobOutput, JobError>> {
        let class = self.classes.get(&run.job.class_name)?;
        let cover = Cover::new(arguments, class.redact);
        let mut body = || {
            let ended = caught(run, || (class.perform)(arguments, run));
            ended.map_err(|error| cover.hide_in(error))
        };
        // Most registries have none, and pay nothing for it.
        Some(match self.around.is_empty() {
            true => body(),
            false => around::perform(&self.around, run, &mut body),
        })
    }

    /// Returns whether a job has arguments of a newer version than its registered type.
    pub(crate) fn is_outdated(&self, run: &Run) -> bool {
        let version = run.policy.arguments_version();
        // Most jobs name none.
        version > FIRST_VERSION
            && self
                .classes
                .get(&run.job.class_name)
                .is_some_and(|class| version > class.version)
    }

    /// Returns whether this class is registered.
    pub(crate) fn has(&self, class_name: &str) -> bool {
        self.classes.contains_key(class_name)
    }

    /// Returns whether the job's class is registered, and in the version of its arguments or a newer
    /// one.
    pub(crate) fn can_perform(&self, run: &Run) -> bool {
        self.has(&run.job.class_name) && !self.is_outdated(run)
    }

    /// Completes the stored policy of a job.
    pub(crate) fn complete(&self, class_name: &str, stored: Policy) -> Policy {
        let known = match self.classes.get(class_name) {
            Some(class) => stored.or(&class.policy),
            None => stored,
        };
        known.or(&self.defaults)
    }

    /// Returns the delay that the job's type requests before its next attempt.
    pub(crate) fn retry_in(
        &self,
        class_name: &str,
        attempt: u32,
        error: &JobError,
    ) -> Option<Duration> {
        let class = self.classes.get(class_name)?;
        (class.retry_in)(attempt, error)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.classes.keys()).finish()
    }
}

/// Tags and metadata are stored with each job, so those of a type are not added again.
fn without_extras(mut policy: Policy) -> Policy {
    policy.extras = None;
    policy
}

fn perform<J: Job>(arguments: &str, state: &J::State, run: &Run) -> Result<JobOutput, JobError> {
    let job: J = ArgumentsReader::of::<J>().read(arguments, run.policy.arguments_version())?;
    let cover = Cover::new(arguments, J::REDACT);
    let context = Context::new(state, run).covered(cover);
    let output = job.perform(&context.with_steps_of(J::MAX_STEP))?;
    as_output(run, J::MAX_RESULT, &output)
}

fn new_job<J: Job>(arguments: &str, version: Option<u32>) -> Result<NewJob, String> {
    let job: J = ArgumentsReader::of::<J>().read_text(arguments, version.unwrap_or(J::VERSION))?;
    NewJob::new(&job).map_err(|error| error.to_string())
}

// --- Creates jobs from the names of their classes ---

impl Registry {
    /// Creates a job from the name of its class and its arguments as JSON text, with the queue,
    /// priority and policy of its type.
    ///
    /// `null` means no arguments, whatever the type.
    ///
    /// # Errors
    /// - If the class is not registered, or the arguments do not match its type's version.
    /// - [`Error::InternalClass`](crate::Error::InternalClass) if its type is
    ///   [internal](crate::Job::INTERNAL).
    pub fn new_job(&self, class_name: &str, arguments: &str) -> Result<NewJob> {
        self.refuse_internal(class_name)?;
        self.trusted_job(class_name, arguments, None)
    }

    fn refuse_internal(&self, class_name: &str) -> Result<()> {
        let class = class_name.to_owned();
        match self.classes.get(class_name) {
            Some(known) if known.internal => Err(Error::InternalClass { class }),
            _ => Ok(()),
        }
    }

    /// Creates a job as [`new_job`](Self::new_job) does, from arguments of this version, converted.
    #[doc(hidden)]
    pub fn new_job_of_version(
        &self,
        class_name: &str,
        arguments: &str,
        version: u32,
    ) -> Result<NewJob> {
        self.refuse_internal(class_name)?;
        self.trusted_job(class_name, arguments, Some(version))
    }

    /// Creates a job as [`new_job`](Self::new_job) does, also one of an internal type.
    pub(crate) fn trusted_job(
        &self,
        class_name: &str,
        arguments: &str,
        version: Option<u32>,
    ) -> Result<NewJob> {
        let refused = |reason: String| Error::InvalidJob {
            class: class_name.chars().take(80).collect(),
            reason,
        };
        let Some(class) = self.classes.get(class_name) else {
            let known = self.classes().collect::<Vec<_>>().join("`, `");
            return Err(refused(format!(
                "no type of this name is registered in this program; registered are `{known}`"
            )));
        };
        (class.new_job)(arguments, version).map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::arguments::decode;
    use crate::job::error::JobResult;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Import {
        file: String,
    }

    impl Job for Import {
        const NAME: &'static str = "import";
        const ALIASES: &'static [&'static str] = &["old_import"];
        type State = ();
        type Output = ();
        fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
            Ok(())
        }
    }

    #[test]
    fn arguments_come_plain_or_in_an_envelope() {
        let expected = Import { file: "a".into() };
        let plain: Import = decode(r#"{"file":"a"}"#).unwrap();
        assert_eq!(plain, expected);
        let ruby = r#"{"job_class":"Import","arguments":[{"file":"a","_aj_symbol_keys":["file"]}],"executions":0}"#;
        assert_eq!(decode::<Import>(ruby).unwrap(), expected);
        assert!(decode::<Import>(r#"{"job_class":"Import","arguments":[]}"#).is_err());
        assert!(decode::<Import>("not json").is_err());
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Bare;

    impl Job for Bare {
        const NAME: &'static str = "bare";
        type State = ();
        type Output = ();
        fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
            Ok(())
        }
    }

    /// The arguments of a recurring task from a file that names none.
    #[test]
    fn no_arguments_are_those_of_a_type_without_fields() {
        for none in ["null", "{}"] {
            assert_eq!(decode::<Bare>(none).unwrap(), Bare, "{none}");
        }
        assert!(decode::<Bare>(r#"{"a":1}"#).is_err());
        assert!(decode::<Import>("{}").is_err());
    }

    #[derive(Serialize, Deserialize)]
    struct Sweep {
        days: Option<u32>,
    }

    impl Job for Sweep {
        const NAME: &'static str = "SweepJob";
        type State = ();
        type Output = ();
        fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
            Ok(())
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Loose {
        file: Option<String>,
        arguments: Option<Vec<u32>>,
        job_class: Option<String>,
    }

    impl Job for Loose {
        const NAME: &'static str = "loose";
        type State = ();
        type Output = ();
        fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
            Ok(())
        }
    }

    #[test]
    fn an_envelope_is_not_taken_for_optional_fields() {
        let ruby = r#"{"job_class":"SweepJob","arguments":[{"days":3}],"executions":0}"#;
        assert_eq!(decode::<Sweep>(ruby).unwrap().days, Some(3));
        let none = r#"{"job_class":"SweepJob","arguments":[]}"#;
        assert_eq!(decode::<Sweep>(none).unwrap().days, None);
        let positional = r#"{"job_class":"SweepJob","arguments":["3"]}"#;
        assert!(decode::<Sweep>(positional).is_err());
        assert_eq!(decode::<Sweep>("{}").unwrap().days, None);
    }

    #[test]
    fn an_envelope_is_never_taken_for_the_job_in_it() {
        let ruby = r#"{"job_class":"Loose","arguments":[{"file":"a"}],"executions":0}"#;
        assert_eq!(decode::<Loose>(ruby).unwrap().file.as_deref(), Some("a"));
        let wrong = r#"{"job_class":"Loose","arguments":[{"file":1}],"executions":0}"#;
        assert!(decode::<Loose>(wrong).is_err());
        let own = r#"{"file":"a","job_class":"x","arguments":[1]}"#;
        assert_eq!(decode::<Loose>(own).unwrap().arguments, Some(vec![1]));
    }

    #[test]
    fn aliases_are_classes_too() {
        let registry = Registry::new().register::<Import>(());
        assert_eq!(
            registry.classes().collect::<Vec<_>>(),
            ["import", "old_import"]
        );
    }

    #[test]
    #[should_panic(expected = "two job types are registered as `import`")]
    fn two_types_of_one_name_are_refused() {
        let _ = Registry::new()
            .register::<Import>(())
            .register::<Import>(());
    }
}
