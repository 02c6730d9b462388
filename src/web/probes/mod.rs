//! `/livez`, `/readyz` and `/startedz`: for containers and load balancers. They report nothing secret, so
//! they need no token.

mod beside;
pub(crate) mod server;
