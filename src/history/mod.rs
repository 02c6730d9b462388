//! What ended, added up by time, queue and class.
//!
//! Each process counts in memory what its jobs came to, and stores it with its heartbeat. A
//! supervisor adds this up to buckets of a minute, ten minutes and an hour. The page
//! `docs/history.md` says what is counted, how exactly, and how long it is kept.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::history::{self, HistoryFilter, TimeRange};
//!
//! let mail = HistoryFilter::all().queue("mail");
//! for bucket in history::series(&mut conn, &mail, TimeRange::Hour)? {
//!     let p99 = bucket.tally.wait.quantile(0.99);
//!     println!("{}: {} finished, p99 {p99:?}", bucket.starts_at, bucket.tally.finished);
//! }
//! for sum in history::by_queue(&mut conn, TimeRange::Day)? {
//!     println!("{}: {} failed", sum.queue, sum.tally.failed);
//! }
//! # Ok::<(), windlass::Error>(())
//! ```

#[cfg(feature = "web")]
pub(crate) mod curves;
pub(crate) mod lag;
pub(crate) mod rates;
pub(crate) mod read;

pub use crate::db::model::history::cell::{FleetGauge, QueueGauge};
pub use crate::db::model::history::tally::{Histogram, Tally};
pub use crate::history::rates::{Usual, typical_run, usual};
pub use crate::history::read::{HistoryFilter, TimeRange, Totals, totals};
pub use lag::{HistoryLag, fold, lag};
pub use rates::{QueueRate, rates};
pub use read::{Bucket, SeriesTally, by_class, by_queue, series};
