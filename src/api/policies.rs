//! Choices of a [`Policy`](crate::Policy).
//!
//! ```
//! use std::time::Duration;
//! use windlass::Policy;
//! use windlass::policies::{OnTimeout, UniqueScope};
//!
//! let policy = Policy::new()
//!     .timeout(Duration::from_secs(60))
//!     .on_timeout(OnTimeout::Fail)
//!     .unique_scope(UniqueScope::WhileWaiting);
//! # let _ = policy;
//! ```

pub use crate::db::model::new_row::UniqueScope;
pub use crate::job::policy::{JobFailed, PropagationStyle};
pub use crate::job::running::OnTimeout;
