//! Processes: as `windlass processes` lists them, and what one reports of itself.
//!
//! ```
//! use std::time::Duration;
//! use windlass::processes;
//! use windlass::{Database, Registry, Worker};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("jobs.db");
//! let database = Database::open(&format!("sqlite://{}", path.display()))?;
//! database.migrate()?;
//! let mut worker = Worker::new(&database, Registry::new()).start()?;
//! # while !worker.health().is_started() { std::thread::yield_now() }
//! for process in processes::list(&mut database.connect()?)? {
//!     println!("{} {}: {} jobs", process.kind, process.name, process.claimed);
//! }
//! worker.stop();
//! let stopped = worker.join(Duration::from_secs(60)).expect("it stops");
//! assert!(stopped.unfinished.is_empty());
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::admin::queues::processes as list;
pub use crate::db::query::status::{ProcessStatus, RunStatus};
pub use crate::process::base::health::{Health, HealthCheck};
pub use crate::process::worker::settings::Recycle;
pub use crate::retention::Retention;
