//! `windlass_web_tokens` and `windlass_web_sessions`: who may use the web pages.

// Only the command `windlass web tokens` makes, lists and revokes tokens.
#[cfg(feature = "web")]
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
pub(crate) mod sessions;
#[cfg(feature = "web")]
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
pub(crate) mod tokens;
pub(crate) mod upkeep;
