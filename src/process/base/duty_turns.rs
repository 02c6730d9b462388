//! The turns of the duties of a process, as its row shows them.

use crate::clock;
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The last turn of each duty of a process, for [its row](crate::process::base::heartbeat).
#[derive(Debug, Clone, Default)]
pub(crate) struct DutyTurns(Arc<Mutex<Vec<LastTurn>>>);

#[derive(Debug, Clone, Copy)]
struct LastTurn {
    duty: &'static str,
    /// The longest time until the next turn.
    interval: Duration,
    /// The time of the last turn that succeeded. Before the first one, the start of the process.
    at: Instant,
}

impl LastTurn {
    /// Returns the time by which the next turn is late, if it is.
    fn lateness(&self) -> Duration {
        self.at.elapsed().saturating_sub(self.interval)
    }
}

impl DutyTurns {
    fn turns(&self) -> MutexGuard<'_, Vec<LastTurn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a duty whose first turn is due, and returns its number.
    pub(crate) fn expect(&self, duty: &'static str, interval: Duration) -> usize {
        let at = clock::instant();
        let mut turns = self.turns();
        turns.push(LastTurn { duty, interval, at });
        turns.len() - 1
    }

    /// Notes that a duty has had a turn, and has the next one after at most `interval`.
    pub(crate) fn had(&self, number: usize, interval: Duration) {
        if let Some(turn) = self.turns().get_mut(number) {
            (turn.interval, turn.at) = (interval, clock::instant());
        }
    }

    /// Returns, by name, the seconds since the last turn and those from one turn to the next. Of several duties with one
    /// name, it is the latest one. `None` if the process has no duties.
    pub(crate) fn to_json(&self) -> Option<Value> {
        let mut turns = self.turns().clone();
        turns.sort_by_key(LastTurn::lateness);
        let turn = |last: &LastTurn| {
            let ago = rounded(last.at.elapsed());
            let turn = json!({ "ago": ago, "every": rounded(last.interval) });
            (last.duty.to_owned(), turn)
        };
        let duties: Map<String, Value> = turns.iter().map(turn).collect();
        (!duties.is_empty()).then_some(Value::Object(duties))
    }
}

/// Returns seconds with three digits after the point.
fn rounded(duration: Duration) -> f64 {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duty_has_its_last_turn() {
        let turns = DutyTurns::default();
        assert_eq!(turns.to_json(), None);
        turns.expect("prune", Duration::from_secs(10));
        let dispatch = turns.expect("dispatch", Duration::ZERO);
        turns.had(dispatch, Duration::from_millis(1_500));
        let shown = turns.to_json().unwrap();
        assert_eq!(shown["dispatch"]["every"], 1.5);
        assert_eq!(shown["prune"]["every"], 10.0);
        assert!(shown["prune"]["ago"].as_f64().unwrap() < 60.0);
    }

    #[test]
    fn of_two_duties_with_one_name_the_later_one_is_shown() {
        let turns = DutyTurns::default();
        let [first, second] = [(); 2].map(|()| turns.expect("clear", Duration::from_secs(9)));
        clock::nap(Duration::from_millis(2));
        turns.had(first, Duration::from_secs(1));
        turns.had(second, Duration::ZERO);
        clock::nap(Duration::from_millis(2));
        assert_eq!(turns.to_json().unwrap()["clear"]["every"], 0.0);
    }
}
