//! What becomes of missed ticks.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What becomes of ticks that no scheduler was there to fire: of those that
/// are overdue by more than [`Scheduler::grace`](crate::Scheduler::grace).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MissedTicks {
    /// The latest is fired, unless a later one is due anyway: one job, however
    /// many ticks were missed. The default.
    #[default]
    Latest,
    /// All are fired that are not older than this, each with a job of its own.
    AllWithin(#[serde(with = "humane")] Duration),
    /// None is fired.
    Skip,
}

/// Durations as people write them: `6h`, `2 days`.
pub(crate) mod humane {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&humantime::format_duration(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(input)?;
        humantime::parse_duration(&text).map_err(|error| {
            D::Error::custom(format!(
                "`{}` is no duration such as `6h`: {error}",
                text.escape_default()
            ))
        })
    }
}
