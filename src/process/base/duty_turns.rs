//! The turns of the duties of a process, as its row shows them.

use crate::clock;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The last turn of each duty of a process, for [its row](crate::process::base::heartbeat).
#[derive(Debug, Clone, Default)]
pub(crate) struct DutyTurns(Arc<Mutex<BTreeMap<&'static str, LastTurn>>>);

#[derive(Debug, Clone, Copy)]
struct LastTurn {
    /// The longest time until the next turn.
    interval: Duration,
    /// The time of the last turn that succeeded. Before the first one, the start of the process.
    at: Instant,
}

impl DutyTurns {
    fn turns(&self) -> MutexGuard<'_, BTreeMap<&'static str, LastTurn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a duty whose first turn is due.
    pub(crate) fn expect(&self, duty: &'static str, interval: Duration) {
        self.had(duty, interval);
    }

    /// Notes that a duty has had a turn, and has the next one after at most `interval`.
    pub(crate) fn had(&self, duty: &'static str, interval: Duration) {
        let at = clock::instant();
        self.turns().insert(duty, LastTurn { interval, at });
    }

    /// Returns, by duty, the seconds since its last turn and those from one turn to the next. `None` if the process has no
    /// duties.
    pub(crate) fn to_json(&self) -> Option<Value> {
        let turns = self.turns();
        let duty = |(duty, last): (&&'static str, &LastTurn)| {
            let ago = rounded(last.at.elapsed());
            let turn = json!({ "ago": ago, "every": rounded(last.interval) });
            ((*duty).to_owned(), turn)
        };
        let duties: Map<String, Value> = turns.iter().map(duty).collect();
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
        turns.had("dispatch", Duration::from_millis(1_500));
        let shown = turns.to_json().unwrap();
        assert_eq!(shown["dispatch"]["every"], 1.5);
        assert_eq!(shown["prune"]["every"], 10.0);
        assert!(shown["prune"]["ago"].as_f64().unwrap() < 60.0);
    }
}
