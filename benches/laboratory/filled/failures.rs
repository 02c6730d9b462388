//! Why jobs failed: a dozen shapes of messages, in every class.

use crate::db::model::fingerprint::fingerprint;
use crate::laboratory::filled::sizes::{self, CLASSES, Sizes};
use crate::laboratory::filled::text::{CLASS, MIXED};

/// Messages that differ in numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Its place in [`SHAPES`].
    number: i64,
    pub(crate) kind: &'static str,
    /// The text before and after the number.
    around: (&'static str, &'static str),
    pub(crate) place: &'static str,
}

macro_rules! shapes {
    ($(($number:literal, $kind:literal, $before:literal, $after:literal, $place:literal)),+ $(,)?) => {
        [$(Shape { number: $number, kind: $kind, around: ($before, $after), place: $place }),+]
    };
}

/// All of them.
pub(crate) const SHAPES: [Shape; 12] = shapes![
    (
        0,
        "ConnectError",
        "connect to 10.0.3.",
        ":5432: connection refused",
        "src/database.rs:41:9"
    ),
    (
        1,
        "Timeout",
        "no answer from mail.example.com after ",
        " ms",
        "src/mail.rs:77:13"
    ),
    (
        2,
        "crashed",
        "its process died while it ran, ",
        " times in all",
        ""
    ),
    (
        3,
        "panic",
        "index out of bounds: the len is 3 but the index is ",
        "",
        "src/import.rs:230:21"
    ),
    (
        4,
        "NotFound",
        "order ",
        " does not exist",
        "src/order.rs:12:5"
    ),
    (
        5,
        "HttpError",
        "POST https://api.example.com/v1/payments/",
        ": 503 Service Unavailable",
        "src/pay.rs:64:17"
    ),
    (
        6,
        "Io",
        "write /var/spool/reports/",
        ".pdf: no space left on device",
        "src/report.rs:150:9"
    ),
    (
        7,
        "undecodable",
        "missing field customer at line 1 column ",
        "",
        ""
    ),
    (
        8,
        "timeout",
        "the job ran longer than its timeout of ",
        " s",
        ""
    ),
    (
        9,
        "Deadlock",
        "deadlock detected: process ",
        " waits for ShareLock on transaction",
        "src/stock.rs:90:13"
    ),
    (
        10,
        "Validation",
        "row ",
        ": the amount is negative",
        "src/import.rs:118:13"
    ),
    (
        11,
        "outcome_unknown",
        "its process ",
        " died while it ran; an at-most-once job is not run again by itself",
        ""
    ),
];

impl Shape {
    /// Returns the fingerprint as an expression of SQL, of the class `c`.
    pub(crate) fn fingerprint(&self) -> String {
        let (before, after) = self.around;
        let message = format!("{before}17{after}");
        let cases = (0..CLASSES).map(|class| {
            let print = fingerprint(&sizes::class_name(class), self.kind, &message);
            format!("WHEN {class} THEN '{print}'")
        });
        format!("CASE c {} END", cases.collect::<Vec<_>>().join(" "))
    }

    /// Returns the message as an expression of SQL with this number in it.
    pub(crate) fn message(&self, number: &str) -> String {
        let (before, after) = self.around;
        format!("'{before}' || {number} % 9973 || '{after}'")
    }
}

/// Returns the rows of the failed jobs with messages of one shape: `id`, `m` and the class `c`.
pub(crate) fn rows(sizes: Sizes, shape: &Shape) -> String {
    let (ended, failed) = (sizes.ended(), sizes.failed());
    let id = format!("((n.i * {ended} + {failed} - 1) / {failed})");
    let mixed = MIXED.replace("n.i", &id);
    let (count, number) = (SHAPES.len(), shape.number);
    format!(
        "(SELECT id, m, {CLASS} AS c FROM (SELECT {id} AS id, {mixed} AS m FROM {{numbers}}) AS mixed \
         WHERE m / 65536 % {count} = {number}) AS failed"
    )
}
