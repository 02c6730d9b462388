//! Who may see and change what. Nothing is open but to those on this host, until it is configured.

pub(crate) mod addresses;
pub(crate) mod known;
pub(crate) mod secret;
pub(crate) mod settings;
pub(crate) mod tokens;
pub(crate) mod viewer;
