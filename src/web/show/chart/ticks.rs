//! The last ticks of a recurring task, as small marks.

use crate::web::show::{Markup, escaped};

/// What became of the job of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TickMark {
    Finished,
    Failed,
    /// Cancelled or discarded.
    Ended,
    Running,
    /// Ready, scheduled or blocked.
    Waiting,
}

impl TickMark {
    pub(crate) fn word(self) -> &'static str {
        match self {
            TickMark::Finished => "finished",
            TickMark::Failed => "failed",
            TickMark::Ended => "discarded or cancelled",
            TickMark::Running => "running",
            TickMark::Waiting => "waiting",
        }
    }

    fn shape(self, x: usize) -> String {
        match self {
            TickMark::Finished => {
                format!("<path class=\"f-done\" d=\"M{} 2h6v12h-6z\"/>", x + 2)
            }
            TickMark::Failed => {
                format!(
                    "<path class=\"cross\" d=\"M{}.5 4.5l7 7m0-7l-7 7\"/>",
                    x + 1
                )
            }
            TickMark::Ended => format!("<path class=\"f-disc\" d=\"M{} 7h6v2h-6z\"/>", x + 2),
            TickMark::Running => format!("<path class=\"f-run\" d=\"M{} 3l7 5-7 5z\"/>", x + 2),
            TickMark::Waiting => {
                format!("<circle class=\"o\" cx=\"{}\" cy=\"8\" r=\"3\"/>", x + 5)
            }
        }
    }
}

/// The most marks.
pub(crate) const MOST: usize = 10;

/// Returns a mark for each tick, the latest on the right. Each has a title, such as the time.
pub(crate) fn ticks(marks: &[(TickMark, String)]) -> Markup {
    if marks.is_empty() {
        return Markup::default();
    }
    let first = MOST.saturating_sub(marks.len());
    let shapes = marks.iter().enumerate().map(|(place, (mark, title))| {
        format!(
            "<g><title>{}</title>{}</g>",
            escaped(title),
            mark.shape((first + place) * 12)
        )
    });
    let label = format!("the last {}, oldest first: {}", marks.len(), sums(marks));
    Markup::trusted(format!(
        "<svg class=\"ticks\" viewBox=\"0 0 120 16\" role=\"img\" aria-label=\"{}\">{}</svg>",
        escaped(&label),
        shapes.collect::<String>()
    ))
}

/// Returns `8 finished, 2 failed`.
pub(crate) fn sums(marks: &[(TickMark, String)]) -> String {
    let all = [
        TickMark::Finished,
        TickMark::Failed,
        TickMark::Ended,
        TickMark::Running,
        TickMark::Waiting,
    ];
    let counts = all.into_iter().filter_map(|kind| {
        let count = marks.iter().filter(|(mark, _)| *mark == kind).count();
        (count > 0).then(|| format!("{count} {}", kind.word()))
    });
    counts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted_and_named() {
        let mark = |mark| (mark, "<1>".to_owned());
        let marks = [
            mark(TickMark::Finished),
            mark(TickMark::Failed),
            mark(TickMark::Finished),
        ];
        assert_eq!(sums(&marks), "2 finished, 1 failed");
        let shown = ticks(&marks).to_string();
        assert!(shown.contains("the last 3, oldest first: 2 finished, 1 failed"));
        assert!(shown.contains("<title>&#60;1&#62;</title>"), "{shown}");
        assert!(
            shown.contains("M110 2h6v12h-6z"),
            "the latest is on the right: {shown}"
        );
        assert!(ticks(&[]).is_empty());
    }
}
