//! The rates in `windlass status`.

use crate::history::QueueRate;
use crate::terminal::table::{Column, Table, printable};
use std::time::Duration;

/// The time over which `windlass status` measures rates.
pub(crate) const OVER: Duration = Duration::from_secs(300);

/// Returns a table of how fast the queues move.
pub(crate) fn rates(rates: &[QueueRate]) -> Table {
    let mut table = Table::new(&[
        Column::text("LAST 5 MIN"),
        Column::number("FINISHED/MIN"),
        Column::number("FAILED/MIN"),
        Column::number("WAIT P50"),
        Column::number("WAIT P99"),
    ]);
    for rate in rates {
        table.add(vec![
            printable(&rate.queue),
            per_minute(rate.finished_per_minute),
            per_minute(rate.failed_per_minute),
            rate.wait_p50_seconds.map_or(String::new(), short),
            rate.wait_p99_seconds.map_or(String::new(), short),
        ]);
    }
    table
}

fn per_minute(rate: f64) -> String {
    let digits = if rate > 0.0 && rate < 10.0 { 1 } else { 0 };
    format!("{rate:.digits$}")
}

/// Returns a duration with two or three digits, such as `35 ms`, `1.2 s` or `4 min`.
fn short(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.000_95 => "<1 ms".to_owned(),
        _ if seconds < 0.999_5 => format!("{:.0} ms", seconds * 1_000.0),
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        _ if seconds < 119.5 => format!("{seconds:.0} s"),
        _ if seconds < 7_170.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_rates_are_short() {
        for (seconds, text) in [
            (0.0, "<1 ms"),
            (0.001, "1 ms"),
            (0.0349, "35 ms"),
            (0.999_9, "1.0 s"),
            (1.24, "1.2 s"),
            (9.96, "10 s"),
            (119.0, "119 s"),
            (240.0, "4 min"),
            (7_200.0, "2 h"),
        ] {
            assert_eq!(short(seconds), text);
        }
        for (rate, text) in [(0.0, "0"), (0.2, "0.2"), (9.94, "9.9"), (1234.5, "1234")] {
            assert_eq!(per_minute(rate), text);
        }
    }
}
