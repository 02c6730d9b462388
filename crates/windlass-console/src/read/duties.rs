//! The last turns of the duties of all processes, as their rows show them.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A duty of the maintenance, of all processes that have it: it is done when any of them does it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DutyNow {
    pub(crate) name: String,
    /// The number of processes that have it.
    pub(crate) processes: usize,
    /// Seconds since the last turn, when the process with the newest one sent its last heartbeat.
    pub(crate) last_turn_seconds: f64,
    /// Seconds from one turn to the next.
    pub(crate) every_seconds: f64,
    /// Seconds for which the next turn is overdue; `null` if it is in time.
    pub(crate) late_seconds: Option<f64>,
}

/// In seconds. A turn that comes so much later is still in time: the turns of other duties take their time, too.
const GRACE: f64 = 10.0;

/// Returns the duties of processes with this metadata, by name. The processes are alive.
pub(crate) fn duties_of_processes<'a>(
    processes: impl IntoIterator<Item = &'a Value>,
) -> Vec<DutyNow> {
    let mut duties: BTreeMap<String, DutyNow> = BTreeMap::new();
    let of_process = |metadata: &'a Value| metadata["duties"].as_object().into_iter().flatten();
    for (name, turn) in processes.into_iter().flat_map(of_process) {
        let (Some(ago), Some(every)) = (turn["ago"].as_f64(), turn["every"].as_f64()) else {
            continue;
        };
        let late = ago - every;
        let found = DutyNow {
            name: name.clone(),
            processes: 1,
            last_turn_seconds: ago,
            every_seconds: every,
            late_seconds: (late > GRACE).then_some(late),
        };
        match duties.get_mut(name) {
            Some(known) => {
                let processes = known.processes + 1;
                if late < known.last_turn_seconds - known.every_seconds {
                    *known = found;
                }
                known.processes = processes;
            }
            None => drop(duties.insert(name.clone(), found)),
        }
    }
    duties.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_duty_is_done_when_any_process_does_it() {
        let slow = json!({ "duties": { "prune": { "ago": 90.0, "every": 10.0 } } });
        let quick = json!({ "duties": { "prune": { "ago": 4.0, "every": 10.0 }, "fold": { "ago": 1.0, "every": 20.0 } } });
        let late = duties_of_processes([&slow, &Value::Null]);
        assert_eq!(late.len(), 1);
        assert_eq!(late[0].late_seconds, Some(80.0));
        for processes in [[&slow, &quick], [&quick, &slow]] {
            let duties = duties_of_processes(processes);
            let names: Vec<&str> = duties.iter().map(|duty| &*duty.name).collect();
            assert_eq!(names, ["fold", "prune"]);
            assert_eq!((duties[1].processes, duties[1].late_seconds), (2, None));
        }
    }

    #[test]
    fn metadata_of_other_programs_have_no_duties() {
        let others = [
            json!("text"),
            json!({ "duties": 7 }),
            json!({ "duties": { "x": "y" } }),
        ];
        assert_eq!(duties_of_processes(&others), []);
    }
}
