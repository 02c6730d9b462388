//! The possible steps, as data: drawn at random, printed and made smaller by proptest. Numbers are
//! picks, taken modulo what there is at that moment, so that a step still means something after the
//! steps before it went away.

use crate::db::model::claim::EqualJobs;
use crate::db::transition::flows::admit::NESTED;
use crate::job::policy::Delivery;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub enum Step {
    Register,
    Heartbeat {
        process: Which,
        right_name: bool,
    },
    Drain {
        process: Which,
    },
    Listen {
        process: Which,
        listening: bool,
    },
    Deregister {
        process: Which,
    },
    Enqueue(New),
    EnqueueAll {
        jobs: Vec<New>,
        roll_back: bool,
    },
    /// A scheduled job's time comes, as if it had passed.
    MakeDue {
        job: u8,
        rank: u8,
    },
    Dispatch {
        batch: usize,
    },
    /// Gives free slots to blocked jobs, and ends batches.
    Promote,
    /// With jobs that follow it, and on what they run.
    EnqueueBatch {
        members: Vec<New>,
        follows: Vec<(New, u8)>,
        /// True if those that follow its success wait until its failed jobs were retried.
        retries: bool,
        /// The jobs of a batch in it.
        inner: Option<Vec<New>>,
    },
    /// Of a job that waits for others, and on what it runs.
    EnqueueAfter {
        new: New,
        picks: Vec<Pick>,
        on: u8,
        retries: bool,
    },
    /// A run ends at a step at which its job waits.
    Park {
        by: By,
        claim: Which,
        until: Until,
    },
    /// A run waits for others, or dies after it has said so.
    Join {
        by: By,
        claim: Which,
        picks: Vec<Pick>,
        parks: bool,
    },
    /// A run does a step that can be undone.
    Undo {
        by: By,
        claim: Which,
        step: u8,
    },
    /// Another job takes the place of a waiting one, by its unique id.
    Replace {
        job: u8,
        new: New,
    },
    Emit {
        event: u8,
        payload: u8,
    },
    /// The time of a job that waits for an event is over.
    MakeLate {
        job: u8,
    },
    /// Looks for waits whose time is over.
    TimeOut,
    /// Deletes events for which no job waits, however young.
    ClearEvents,
    AddToBatch {
        batch: u8,
        members: Vec<New>,
    },
    /// Deletes batches that are over and have no jobs left.
    ClearBatches,
    Claim {
        process: Which,
        queues: Option<Vec<u8>>,
        classes: u8,
        limit: usize,
    },
    Finish {
        by: By,
        claims: Vec<Which>,
        keep: bool,
        /// The request for jobs that the process may claim in their place.
        next: Option<Next>,
    },
    End {
        by: By,
        claim: Which,
        end: End,
        keep: bool,
        last: LastRetry,
    },
    /// A run returned an error: the policy of its job decides.
    EndByError {
        by: By,
        claim: Which,
        keep: bool,
        last: LastRetry,
    },
    Release {
        by: By,
        claims: Vec<Which>,
        delay: Option<u16>,
    },
    Prune {
        process: Which,
        sight: Sight,
        crash: bool,
    },
    /// Says what is to become of a job when its process ends.
    Decide {
        claim: Which,
        end: End,
    },
    /// An operation on jobs from outside.
    Move {
        jobs: Vec<u8>,
        what: Move,
    },
    /// Takes away what has finished, or what has failed, however young.
    Clear {
        failed: bool,
    },
    Pause {
        queue: u8,
    },
    Unpause {
        queue: u8,
    },
    PauseClass {
        class: u8,
    },
    ResumeClass {
        class: u8,
    },
    /// Sets the slots of a key, or of the group of all keys.
    SetLimit {
        key: Option<u8>,
        slots: u8,
    },
    ClearLimit {
        key: Option<u8>,
    },
    /// Gives a job new arguments.
    Edit {
        job: u8,
        arguments: u8,
    },
    /// Adds a tag, or removes it.
    Tag {
        jobs: Vec<u8>,
        add: bool,
    },
    /// A worker gives back what it does not remember: the bits of `memory`.
    Reconcile {
        process: Which,
        memory: u8,
    },
    /// Asks, after a lost answer, which endings were its own.
    Ended {
        claims: Vec<Which>,
    },
    Look,
}

/// A process or a claim: of those that are there now, or of all that ever were.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    Now(u8),
    Ever(u8),
}

/// A job or a batch for which another waits.
#[derive(Debug, Clone, Copy)]
pub enum Pick {
    /// A job that has not ended.
    Open(u8),
    /// Any job.
    Any(u8),
    Batch(u8),
}

/// The event or the time for which a job waits at a step.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    Event(u8),
    /// After so many seconds.
    Pause(u16),
}

/// In whose name a claim is ended.
#[derive(Debug, Clone, Copy)]
pub enum By {
    /// The owner of the first of the claims.
    Owner,
    Process(Which),
}

/// Queues, all if there are none, classes, and what ready jobs of the same priority do.
#[derive(Debug, Clone)]
pub struct Next {
    pub queues: Option<Vec<u8>>,
    pub classes: u8,
    pub equal: EqualJobs,
}

/// The end of a run that did not succeed. Delays of zero are over at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Fail,
    Retry(u16),
    Discard,
    Cancel,
    Snooze(u16),
    Release,
}

/// The time after which a job is not tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastRetry {
    None,
    Passed,
    Far,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Cancel,
    Discard,
    Retry {
        even_at_most_once: bool,
    },
    /// After so many seconds; zero is at once.
    Reschedule(u16),
    ChangePriority(i32),
    /// The time by which they must have started has passed.
    Expire,
}

/// The evidence by which a pruner decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It waited for the child.
    Certain,
    /// The heartbeat that the process sent last.
    Fresh,
    /// An older one.
    Stale,
}

#[derive(Debug, Clone, PartialEq)]
pub struct New {
    pub queue: u8,
    pub class: u8,
    pub priority: i32,
    pub when: When,
    pub delivery: Delivery,
    pub key: Option<u8>,
    /// Its concurrency key.
    pub limit: Option<u8>,
    /// The unique id.
    pub name: Option<u8>,
    pub max_crashes: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    Now,
    /// An absolute time that has passed.
    Past,
    /// An absolute time far ahead.
    Future,
    /// After so many seconds, never due within a test.
    After(u16),
}

/// The last queue and the last class are those of jobs that stand for batches.
pub const QUEUES: [&str; 4] = ["alpha", "alpha_2", "beta", "default"];
pub const CLASSES: [&str; 4] = ["a", "b", "c", NESTED];

/// Delays that no test lasts.
fn delay() -> impl Strategy<Value = u16> {
    1_000..60_000_u16
}

fn delay_or_none() -> impl Strategy<Value = u16> {
    prop_oneof![3 => delay(), 1 => Just(0)]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        3 => Just(End::Fail),
        2 => delay_or_none().prop_map(End::Retry),
        1 => Just(End::Discard),
        1 => Just(End::Cancel),
        1 => delay_or_none().prop_map(End::Snooze),
        1 => Just(End::Release),
    ]
}

fn moves() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        2 => Just(Move::Cancel),
        1 => Just(Move::Discard),
        3 => any::<bool>().prop_map(|even_at_most_once| Move::Retry { even_at_most_once }),
        1 => delay_or_none().prop_map(Move::Reschedule),
        2 => (0..3_i32).prop_map(Move::ChangePriority),
        1 => Just(Move::Expire),
    ];
    (vec(any::<u8>(), 1..4), what).prop_map(|(jobs, what)| Step::Move { jobs, what })
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![4 => any::<u8>().prop_map(Which::Now), 1 => any::<u8>().prop_map(Which::Ever)]
}

fn by() -> impl Strategy<Value = By> {
    prop_oneof![5 => Just(By::Owner), 1 => which().prop_map(By::Process)]
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        7 => Just(Delivery::AtLeastOnce),
        1 => Just(Delivery::AtMostOnce),
        2 => Just(Delivery::AfterKnownOutcome),
    ]
}

fn new() -> impl Strategy<Value = New> {
    let when = prop_oneof![
        6 => Just(When::Now),
        1 => Just(When::Past),
        1 => Just(When::Future),
        2 => delay().prop_map(When::After),
    ];
    (
        (0..3_u8, 0..3_u8, 0..3_i32),
        when,
        delivery(),
        (
            option::weighted(0.2, 0..4_u8),
            option::weighted(0.3, 0..4_u8),
            option::weighted(0.4, 0..4_u8),
        ),
        option::weighted(0.3, 0..4_i32),
    )
        .prop_map(
            |((queue, class, priority), when, delivery, (key, name, limit), max_crashes)| New {
                queue,
                class,
                priority,
                when,
                delivery,
                key,
                limit,
                name,
                max_crashes,
            },
        )
}

fn sight() -> impl Strategy<Value = Sight> {
    prop_oneof![3 => Just(Sight::Fresh), 2 => Just(Sight::Certain), 2 => Just(Sight::Stale)]
}

fn queues() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(vec(0..3_u8, 0..6).prop_map(|mut names| {
        let mut seen = [false; 3];
        names.retain(|name| !std::mem::replace(&mut seen[usize::from(*name)], true));
        names
    }))
}

fn classes() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0b111_u8), 1 => 0..8_u8]
}

fn finish() -> impl Strategy<Value = Step> {
    let equal = prop_oneof![Just(EqualJobs::Wait), Just(EqualJobs::GoFirst)];
    let queues = prop_oneof![1 => Just(None), 1 => queues()];
    let next = (queues, classes(), equal).prop_map(|(queues, classes, equal)| Next {
        queues,
        classes,
        equal,
    });
    let claims = vec(which(), 1..4);
    (by(), claims, any::<bool>(), option::weighted(0.8, next)).prop_map(
        |(by, claims, keep, next)| Step::Finish {
            by,
            claims,
            keep,
            next,
        },
    )
}

fn claim() -> impl Strategy<Value = Step> {
    (which(), queues(), classes(), 0..8_usize).prop_map(|(process, queues, classes, limit)| {
        Step::Claim {
            process,
            queues,
            classes,
            limit,
        }
    })
}

fn last_retry() -> impl Strategy<Value = LastRetry> {
    prop_oneof![4 => Just(LastRetry::None), 1 => Just(LastRetry::Passed), 1 => Just(LastRetry::Far)]
}

fn key_or_group() -> impl Strategy<Value = Option<u8>> {
    option::weighted(0.5, 0..4_u8)
}

/// Returns the steps of operators while the processes run.
fn run_time() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..3_u8).prop_map(|class| Step::PauseClass { class }),
        3 => (0..3_u8).prop_map(|class| Step::ResumeClass { class }),
        2 => (key_or_group(), 0..4_u8).prop_map(|(key, slots)| Step::SetLimit { key, slots }),
        3 => key_or_group().prop_map(|key| Step::ClearLimit { key }),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(job, arguments)| Step::Edit { job, arguments }),
        1 => (vec(any::<u8>(), 1..4), any::<bool>()).prop_map(|(jobs, add)| Step::Tag { jobs, add }),
    ]
}

fn batches() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (vec(new(), 0..4), vec((new(), 0..3_u8), 0..3), any::<bool>(), option::weighted(0.3, vec(new(), 0..3)))
            .prop_map(|(members, follows, retries, inner)| Step::EnqueueBatch { members, follows, retries, inner }),
        2 => (any::<u8>(), vec(new(), 1..3))
            .prop_map(|(batch, members)| Step::AddToBatch { batch, members }),
        1 => Just(Step::ClearBatches),
    ]
}

fn picks() -> impl Strategy<Value = Vec<Pick>> {
    let pick = prop_oneof![
        5 => any::<u8>().prop_map(Pick::Open),
        2 => any::<u8>().prop_map(Pick::Any),
        1 => any::<u8>().prop_map(Pick::Batch),
    ];
    vec(pick, 1..4)
}

/// Jobs that wait for others, and for events.
fn flows() -> impl Strategy<Value = Step> {
    let until = prop_oneof![
        3 => (0..3_u8).prop_map(Until::Event),
        1 => delay().prop_map(Until::Pause),
    ];
    prop_oneof![
        7 => (new(), picks(), 0..3_u8, any::<bool>())
            .prop_map(|(new, picks, on, retries)| Step::EnqueueAfter { new, picks, on, retries }),
        5 => (by(), which(), until).prop_map(|(by, claim, until)| Step::Park { by, claim, until }),
        3 => (by(), which(), picks(), proptest::bool::weighted(0.8))
            .prop_map(|(by, claim, picks, parks)| Step::Join { by, claim, picks, parks }),
        7 => (by(), which(), 0..2_u8).prop_map(|(by, claim, step)| Step::Undo { by, claim, step }),
        2 => (any::<u8>(), new()).prop_map(|(job, new)| Step::Replace { job, new }),
        3 => (0..3_u8, 0..2_u8).prop_map(|(event, payload)| Step::Emit { event, payload }),
        3 => any::<u8>().prop_map(|job| Step::MakeLate { job }),
        3 => Just(Step::TimeOut),
        1 => Just(Step::ClearEvents),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let claims = || vec(which(), 1..4);
    prop_oneof![
        8 => Just(Step::Register),
        2 => (which(), proptest::bool::weighted(0.8))
            .prop_map(|(process, right_name)| Step::Heartbeat { process, right_name }),
        1 => which().prop_map(|process| Step::Drain { process }),
        1 => (which(), any::<bool>()).prop_map(|(process, listening)| Step::Listen { process, listening }),
        1 => which().prop_map(|process| Step::Deregister { process }),
        14 => new().prop_map(Step::Enqueue),
        2 => (vec(new(), 0..5), proptest::bool::weighted(0.3))
            .prop_map(|(jobs, roll_back)| Step::EnqueueAll { jobs, roll_back }),
        6 => (any::<u8>(), 0..4_u8).prop_map(|(job, rank)| Step::MakeDue { job, rank }),
        4 => (1..4_usize).prop_map(|batch| Step::Dispatch { batch }),
        8 => Just(Step::Promote),
        6 => batches(),
        22 => flows(),
        20 => claim(),
        9 => finish(),
        4 => (by(), which(), end(), any::<bool>(), last_retry())
            .prop_map(|(by, claim, end, keep, last)| Step::End { by, claim, end, keep, last }),
        2 => (by(), which(), any::<bool>(), last_retry())
            .prop_map(|(by, claim, keep, last)| Step::EndByError { by, claim, keep, last }),
        1 => (which(), end()).prop_map(|(claim, end)| Step::Decide { claim, end }),
        5 => moves(),
        1 => any::<bool>().prop_map(|failed| Step::Clear { failed }),
        4 => (by(), claims(), option::of(delay()))
            .prop_map(|(by, claims, delay)| Step::Release { by, claims, delay }),
        5 => (which(), sight(), proptest::bool::weighted(0.8))
            .prop_map(|(process, sight, crash)| Step::Prune { process, sight, crash }),
        1 => (0..3_u8).prop_map(|queue| Step::Pause { queue }),
        4 => (0..3_u8).prop_map(|queue| Step::Unpause { queue }),
        7 => run_time(),
        1 => (which(), any::<u8>()).prop_map(|(process, memory)| Step::Reconcile { process, memory }),
        1 => claims().prop_map(|claims| Step::Ended { claims }),
        1 => Just(Step::Look),
    ]
}

/// A job without anything special.
pub fn plain() -> New {
    New {
        queue: 0,
        class: 0,
        priority: 0,
        when: When::Now,
        delivery: Delivery::AtLeastOnce,
        key: None,
        limit: None,
        name: None,
        max_crashes: None,
    }
}

/// A batch of one job, in another if it is nested, and what follows its success.
pub fn batch(retries: bool, is_nested: bool) -> Step {
    let jobs = vec![plain()];
    let (members, inner) = match is_nested {
        true => (Vec::new(), Some(jobs)),
        false => (jobs, None),
    };
    Step::EnqueueBatch {
        members,
        follows: vec![(plain(), 0)],
        retries,
        inner,
    }
}

/// A job that waits for the success of the first, also by a retry.
pub fn enqueues_after() -> Step {
    Step::EnqueueAfter {
        new: plain(),
        picks: vec![Pick::Open(0)],
        on: 0,
        retries: true,
    }
}

/// The job that runs does a step that can be undone.
pub fn undoes(step: u8) -> Step {
    Step::Undo {
        by: By::Owner,
        claim: Which::Now(0),
        step,
    }
}

pub fn claims_all() -> Step {
    claims(8)
}

pub fn claims_one() -> Step {
    claims(1)
}

fn claims(limit: usize) -> Step {
    Step::Claim {
        process: Which::Now(0),
        queues: None,
        classes: 0b111,
        limit,
    }
}

pub fn fails() -> Step {
    Step::End {
        by: By::Owner,
        claim: Which::Now(0),
        end: End::Fail,
        keep: true,
        last: LastRetry::None,
    }
}

pub fn retries() -> Step {
    moves_all(Move::Retry {
        even_at_most_once: false,
    })
}

pub fn moves_all(what: Move) -> Step {
    Step::Move {
        jobs: vec![u8::MAX],
        what,
    }
}

/// Finishes what is claimed, without keeping it.
pub fn finishes() -> Step {
    Step::Finish {
        by: By::Owner,
        claims: vec![Which::Now(0)],
        keep: false,
        next: None,
    }
}
