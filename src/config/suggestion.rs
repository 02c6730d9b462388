//! The name that was probably meant by one that does not exist.

use std::collections::BTreeSet;

/// Returns the known name that is most similar, if one is similar enough.
pub(crate) fn nearest<K: AsRef<str>>(name: &str, known: impl Iterator<Item = K>) -> Option<K> {
    known
        .map(|known| (strsim::jaro_winkler(name, known.as_ref()), known))
        .filter(|(nearness, _)| *nearness > 0.85)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

/// Returns `; did you mean ..?` if a similar name exists, and otherwise the existing names.
pub(crate) fn suggestion<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let known: BTreeSet<&str> = known.collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.len() <= 12 => {
            let known: Vec<&str> = known.into_iter().collect();
            format!("; there are {}", known.join(", "))
        }
        None => String::new(),
    }
}
