//! Recurring tasks: jobs that are enqueued repeatedly on a schedule.
//!
//! A [`Scheduler`](crate::Scheduler) fires them. A task is *declared* if it is part of the code or
//! configuration of a program with a scheduler. Otherwise it is *scheduled at run time* with
//! [`schedule`]; then any scheduler fires it until [`unschedule`] is called.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use windlass::{Context, Job, JobResult};
//! # #[derive(Serialize, Deserialize)] struct Report { days: u32 }
//! # impl Job for Report {
//! #     const NAME: &'static str = "report";
//! #     type State = (); type Output = ();
//! #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
//! # }
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::{RecurringTask, recurring};
//!
//! let task = RecurringTask::new("weekly_report", "0 9 * * MON Europe/Berlin", &Report { days: 7 })?;
//! recurring::schedule(&mut conn, &task)?;
//! recurring::run_now(&mut conn, "weekly_report")?; // an additional run, at any time
//! recurring::pause(&mut conn, "weekly_report")?;
//! recurring::resume(&mut conn, "weekly_report")?;
//! assert!(recurring::unschedule(&mut conn, "weekly_report")?);
//! # Ok::<(), windlass::Error>(())
//! ```

pub(crate) mod cron;
pub(crate) mod edit;
pub(crate) mod in_words;
pub(crate) mod operate;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod schedule;
pub(crate) mod settings;
pub(crate) mod task;
pub(crate) mod tasks;
pub(crate) mod time_zone;
pub(crate) mod timing;

pub use crate::db::model::recurring::Overlap;
pub use crate::recurring::schedule::Schedule;
pub use crate::recurring::tasks::{TickStatus, ticks};
pub use settings::RecurringSettings;
pub use tasks::{
    RecurringStatus, history, list, pause, resume, run_now, schedule, unschedule, upcoming,
};
pub use timing::{MissedTicks, Timing};
