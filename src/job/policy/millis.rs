//! Durations as whole milliseconds, which are readable in a column. They are rounded up, so that a
//! short time does not become zero, which means something else.

use serde::{Deserialize, Deserializer, Serializer};
use std::time::Duration;

pub(crate) fn serialize<S: Serializer>(value: &Duration, out: S) -> Result<S::Ok, S::Error> {
    let millis = value.as_nanos().div_ceil(1_000_000);
    out.serialize_u64(u64::try_from(millis).unwrap_or(u64::MAX))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    u64::deserialize(input).map(Duration::from_millis)
}

/// The same for a value that may be absent.
pub(crate) mod option {
    use serde::{Deserializer, Serializer};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        super::serialize(&value.unwrap_or_default(), out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Option<Duration>, D::Error> {
        super::deserialize(input).map(Some)
    }
}
