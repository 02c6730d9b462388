//! How a viewer comes in: by a token, a session, or from this host.

pub(crate) mod gate;
