//! Durations as users write them: `6h`, `2 days`.

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
