//! What happens to missed ticks.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What happens to ticks that no scheduler fired in time: those overdue by more than
/// [`Scheduler::grace`](crate::Scheduler::grace).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MissedTicks {
    /// Fires the latest one, unless a later tick is due anyway: one job, however many ticks were
    /// missed. This is the default.
    #[default]
    Latest,
    /// Fires each of them that is not older than this, with a job of its own.
    AllWithin(#[serde(with = "humane")] Duration),
    /// Fires none of them.
    Skip,
}

/// Durations as users write them: `6h`, `2 days`.
pub(crate) mod humane {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&crate::clock::in_units(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(input)?;
        humantime::parse_duration(&text).map_err(|error| {
            D::Error::custom(format!(
                "`{}` is not a duration such as `6h`: {error}",
                text.escape_default()
            ))
        })
    }

    /// The same for a value that may be missing.
    pub(crate) mod option {
        use super::{Deserializer, Duration, Serializer};

        pub(crate) fn serialize<S: Serializer>(
            value: &Option<Duration>,
            out: S,
        ) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => super::serialize(value, out),
                None => out.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
            input: D,
        ) -> Result<Option<Duration>, D::Error> {
            super::deserialize(input).map(Some)
        }
    }
}
