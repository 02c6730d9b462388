//! The lines that a job logs about itself, until a heartbeat or its end stores them.

use crate::db::model::claim::Fence;
use crate::db::table::job_logs::{LogLine, LoggedRun, to_column};
use log::Level;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many lines of a run are kept.
const MOST_LINES: usize = 1_000;

/// How many bytes of text they have together at most.
const MOST_BYTES: usize = 64 * 1024;

/// The longest line, in bytes.
const LONGEST: usize = 4 * 1024;

/// What a run has logged.
#[derive(Debug, Default)]
pub(crate) struct RunLog {
    /// Set with the first line. Most jobs log nothing, and this is all that is read of them.
    is_used: AtomicBool,
    buffer: Mutex<LogBuffer>,
}

#[derive(Debug, Default)]
struct LogBuffer {
    lines: VecDeque<LogLine>,
    /// Of the lines that are kept.
    bytes: usize,
    /// How many lines were logged, and how many of these have been stored or dropped.
    total: i64,
    stored: i64,
}

impl RunLog {
    fn buffer(&self) -> MutexGuard<'_, LogBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds each line of a text. The oldest lines are dropped for it, if there are too many.
    pub(crate) fn add(&self, after: Duration, level: Level, text: &str) {
        self.is_used.store(true, Ordering::Relaxed);
        let mut buffer = self.buffer();
        for line in text.lines() {
            let line = LogLine {
                after,
                level,
                text: line.to_owned(),
            };
            buffer.bytes += line.text.len();
            buffer.total += 1;
            buffer.lines.push_back(line);
            while buffer.lines.len() > MOST_LINES || buffer.bytes > MOST_BYTES {
                let Some(oldest) = buffer.lines.pop_front() else {
                    break;
                };
                buffer.bytes -= oldest.text.len();
            }
        }
    }

    /// Whether there are lines that are not stored yet.
    pub(crate) fn has_news(&self) -> bool {
        self.is_used.load(Ordering::Relaxed) && {
            let buffer = self.buffer();
            buffer.stored < buffer.total
        }
    }

    /// Returns what is to be stored, `ran` after the start of the run. `None` if nothing is new.
    pub(crate) fn news(
        &self,
        fence: Fence,
        job_id: i64,
        attempts: i32,
        ran: Duration,
    ) -> Option<LoggedRun> {
        if !self.has_news() {
            return None;
        }
        let buffer = self.buffer();
        Some(LoggedRun {
            fence,
            job_id,
            attempt: attempts.max(0).saturating_add(1),
            ran,
            lines: to_column(buffer.lines.iter()),
            total: buffer.total,
            is_first: buffer.stored == 0,
        })
    }

    /// Marks these lines as stored.
    pub(crate) fn carried(&self, stored: &LoggedRun) {
        let mut buffer = self.buffer();
        buffer.stored = buffer.stored.max(stored.total);
    }

    /// Returns the lines that are kept.
    pub(crate) fn lines(&self) -> Vec<LogLine> {
        self.buffer().lines.iter().cloned().collect()
    }
}

/// Replaces control characters, with which a text could move the cursor of a terminal, or which a
/// database refuses, and cuts long lines.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut lines = text.lines();
    let mut add = |line: &str| {
        let start = clean.len();
        for letter in line.chars() {
            let letter = match letter {
                '\t' => ' ',
                letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
                letter => letter,
            };
            if clean.len() - start + letter.len_utf8() > LONGEST {
                clean.push('…');
                break;
            }
            clean.push(letter);
        }
        clean.push('\n');
    };
    // An empty text is a line, too.
    add(lines.next().unwrap_or_default());
    lines.for_each(add);
    clean.pop();
    if clean.is_empty() {
        clean.push('\n');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(log: &RunLog, text: &str) {
        log.add(Duration::ZERO, Level::Info, &clean(text));
    }

    #[test]
    fn hostile_texts_are_made_printable() {
        assert_eq!(clean("a\u{1b}[31mb\0c\td"), "a\u{FFFD}[31mb\u{FFFD}c d");
        assert_eq!(clean("one\r\ntwo\n\nfour\n"), "one\ntwo\n\nfour");
        assert_eq!(clean(""), "\n");
        assert_eq!(clean("\u{9b}2J"), "\u{FFFD}2J");
        let long = clean(&"ä".repeat(LONGEST));
        assert_eq!(long.len(), LONGEST + '…'.len_utf8());
    }

    #[test]
    fn the_newest_lines_are_kept() {
        let log = RunLog::default();
        assert!(!log.has_news());
        for number in 0..MOST_LINES + 5 {
            add(&log, &number.to_string());
        }
        assert_eq!(log.lines().len(), MOST_LINES);
        assert_eq!(log.lines()[0].text, "5");
        add(&log, "");
        assert_eq!(log.lines().last().unwrap().text, "");
        for _ in 0..20 {
            add(&log, &"x".repeat(LONGEST));
        }
        let bytes: usize = log.lines().iter().map(|line| line.text.len()).sum();
        assert_eq!(bytes, MOST_BYTES);
        assert_eq!(log.buffer().bytes, bytes);
    }

    #[test]
    fn only_new_lines_are_news() {
        let log = RunLog::default();
        let fence = Fence {
            process_id: 1,
            claim_id: 2,
        };
        let news = || log.news(fence, 3, 0, Duration::ZERO);
        assert!(news().is_none());
        add(&log, "a\nb");
        let first = news().unwrap();
        assert_eq!((first.total, first.is_first), (2, true));
        add(&log, "c");
        log.carried(&first);
        let second = news().unwrap();
        assert_eq!((second.total, second.is_first), (3, false));
        log.carried(&second);
        log.carried(&first);
        assert!(news().is_none());
    }
}
