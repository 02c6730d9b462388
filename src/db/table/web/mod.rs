//! `windlass_web_tokens` and `windlass_web_sessions`: who may use the web pages.

#[cfg(feature = "web")]
pub(crate) mod sessions;
#[cfg(feature = "web")]
pub(crate) mod tokens;
pub(crate) mod upkeep;
