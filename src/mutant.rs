//! Deliberate faults, which prove that the chaos run, the model test and the interleavings would
//! find real ones.
//!
//! A build under `WINDLASS_MUTANTS=1` (see `build.rs`) has the fault that `WINDLASS_MUTANT` names
//! at run time. In unit tests, each thread can set its own. Releases contain none.

/// Returns true if this program runs with the fault of this name.
#[cfg(all(windlass_mutants, not(test)))]
#[expect(clippy::disallowed_methods, reason = "no setting of a real program")]
pub(crate) fn is(name: &str) -> bool {
    static MUTANT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let mutant = MUTANT.get_or_init(|| std::env::var("WINDLASS_MUTANT").ok());
    mutant.as_deref() == Some(name)
}

/// Always `false`.
#[cfg(not(any(windlass_mutants, test)))]
pub(crate) const fn is(_name: &str) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static OF_THIS_THREAD: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// Returns true if this thread runs with the fault of this name.
#[cfg(test)]
pub(crate) fn is(name: &str) -> bool {
    OF_THIS_THREAD.get() == name
}

/// Sets the fault of this thread from now on; an empty name removes it.
#[cfg(test)]
#[cfg(feature = "internal-tests")]
pub(crate) fn set(name: &'static str) {
    OF_THIS_THREAD.set(name);
}
