//! The sources of values: the file, the environment, the command line.

use std::collections::BTreeMap;

/// Returns the variables that may be settings.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let ours = name.starts_with("WINDLASS_") || name == "DATABASE_URL";
        // An empty variable counts as not set.
        let value = value.to_string_lossy().into_owned();
        (ours && !value.trim().is_empty()).then_some((name, value))
    });
    variables.collect()
}
