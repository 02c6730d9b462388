//! Where values come from: the file, the environment, the command line.

use std::collections::BTreeMap;

/// The variables that may be settings.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let ours = name.starts_with("WINDLASS_") || name == "DATABASE_URL";
        // One that is empty is one that is not set.
        let value = value.to_string_lossy().into_owned();
        (ours && !value.trim().is_empty()).then_some((name, value))
    });
    variables.collect()
}
