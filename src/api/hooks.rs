//! Code of a program around its jobs and processes, beside [`Hooks`](crate::Hooks): subscribers of every
//! [`Event`](crate::Event), and functions around every job.
//!
//! ```no_run
//! use windlass::hooks::Subscriber;
//! use windlass::{Event, Hooks, Registry, Worker};
//!
//! # let database = windlass::Database::open("sqlite://jobs.db")?;
//! let registry = Registry::new().around(|cx, next| {
//!     println!("job {} starts", cx.job_id());
//!     next.run()
//! });
//! let subscriber = Subscriber::new(|event| {
//!     if let Event::Failed { job, .. } = event {
//!         println!("job {job} has failed");
//!     }
//! });
//! Worker::new(&database, registry)
//!     .subscriber(subscriber)
//!     .hooks(Hooks::new().on_exit(|process| println!("{} ends", process.kind)))
//!     .run()?;
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::event::hooks::ProcessInfo;
pub use crate::event::logging::Subscriber;
pub use crate::job::around::{JobEnd, JobRan, Next};
