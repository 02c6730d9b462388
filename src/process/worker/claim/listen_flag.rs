//! Whether a worker wants to be notified.

/// What this process' row contains about that. NOTIFY makes commits wait for each other, so a
/// worker that is busy anyway does not listen.
#[derive(Debug, Default)]
pub(crate) struct ListenFlag {
    /// The registration that the flag was written to. A new registration listens.
    registration: i64,
    is_off: bool,
    full_claims: u32,
}

/// What a look at the queues found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busyness {
    /// Enough jobs for all threads.
    Busy,
    /// Fewer jobs.
    Idle,
}

/// After how many claims in a row that found enough jobs the process stops listening.
const FULL_CLAIMS: u32 = 3;

impl ListenFlag {
    /// Counts a busy or an idle look of a registration. Returns the new value for its row, or `None`
    /// if that does not change.
    pub(crate) fn after_look(&mut self, registration: i64, load: Busyness) -> Option<bool> {
        if self.registration != registration {
            *self = ListenFlag {
                registration,
                ..ListenFlag::default()
            };
        }
        let idle = load == Busyness::Idle;
        self.full_claims = if idle { 0 } else { self.full_claims + 1 };
        let off = !idle && (self.is_off || self.full_claims >= FULL_CLAIMS);
        (off != self.is_off).then_some(!off)
    }

    /// Notes that the process claims nothing for a while. Returns the new value for its row, or
    /// `None` if that does not change.
    pub(crate) fn at_rest(&mut self, registration: i64) -> Option<bool> {
        *self = ListenFlag {
            registration,
            is_off: self.is_off && self.registration == registration,
            full_claims: FULL_CLAIMS,
        };
        (!self.is_off).then_some(false)
    }

    /// Notes that the value was written.
    pub(crate) fn note(&mut self, listens: bool) {
        self.is_off = !listens;
    }
}

#[cfg(test)]
mod tests {
    use super::Busyness::{Busy, Idle};
    use super::*;

    /// Counts looks and notes each result; returns the value of the row after each.
    fn looks(
        listen_flag: &mut ListenFlag,
        registration: i64,
        loads: &[Busyness],
    ) -> Vec<Option<bool>> {
        let look = |load: &Busyness| {
            let listens = listen_flag.after_look(registration, *load);
            listens.inspect(|listens| listen_flag.note(*listens))
        };
        loads.iter().map(look).collect()
    }

    #[test]
    fn a_busy_worker_does_not_listen() {
        let mut listen_flag = ListenFlag::default();
        let said = looks(&mut listen_flag, 1, &[Idle, Busy, Busy, Busy, Busy, Idle]);
        assert_eq!(said, [None, None, None, Some(false), None, Some(true)]);
    }

    #[test]
    fn at_rest_it_stops_listening_at_once() {
        let mut listen_flag = ListenFlag::default();
        assert_eq!(listen_flag.at_rest(1), Some(false));
        listen_flag.note(false);
        assert_eq!(listen_flag.at_rest(1), None);
        assert_eq!(
            looks(&mut listen_flag, 1, &[Busy, Idle]),
            [None, Some(true)]
        );
        assert_eq!(listen_flag.at_rest(2), Some(false));
    }

    #[test]
    fn only_in_a_row() {
        let mut listen_flag = ListenFlag::default();
        let said = looks(&mut listen_flag, 1, &[Busy, Busy, Idle, Busy, Busy]);
        assert_eq!(said, [None; 5]);
    }

    #[test]
    fn a_new_registration_listens() {
        let mut listen_flag = ListenFlag::default();
        looks(&mut listen_flag, 1, &[Busy; 3]);
        assert_eq!(looks(&mut listen_flag, 2, &[Idle]), [None]);
        assert_eq!(looks(&mut listen_flag, 2, &[Busy; 3])[2], Some(false));
    }
}
