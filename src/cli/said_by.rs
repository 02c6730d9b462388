//! `--by` and `--reason`: who changes something, and why.

use crate::admin::explain::words::age;
use crate::db::model::audit::{Actor, Via};
use crate::terminal::table::printable;

/// By whom and why something is changed.
#[derive(Debug, clap::Args)]
pub(crate) struct SaidBy {
    /// The reason, which `windlass audit` shows
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,

    /// The name to record [default: the user of this process, at this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl SaidBy {
    pub(crate) fn actor(&self) -> Actor {
        let actor = Actor::named(self.by.as_deref().unwrap_or_default());
        actor.via(Via::Cli).reason(&*self.reason)
    }
}

/// Returns ` 3m ago by ada: the provider is down`, as far as it is known.
pub(crate) fn said(seconds: Option<f64>, by: Option<&str>, reason: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(seconds) = seconds {
        text.push_str(&format!(" {} ago", age(seconds)));
    }
    if let Some(by) = by {
        text.push_str(&format!(" by {}", printable(by)));
    }
    if let Some(reason) = reason {
        text.push_str(&format!(": {}", printable(reason)));
    }
    text
}
