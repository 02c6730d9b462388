//! The contribution of a process or a transaction to the history.

use crate::db::model::history::cell::{self, Cell, StoredCell, Unreadable};
use crate::db::model::history::tally::Tally;
use std::collections::BTreeMap;

/// The most series of a queue and a class.
pub(crate) const MOST_SERIES: usize = 1_000;

/// The number of them that are kept free for the rest of queues that have a series already.
const FOR_OTHERS: usize = 100;

/// The name of a queue or a class that has no series of its own.
pub(crate) const OTHER: &str = "other";

/// The longest name in bytes: a longer one is cut.
const LONGEST_NAME: usize = 255;

/// A value for each series of a queue and a class, of which there are at most [`MOST_SERIES`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BySeries<T> {
    queues: BTreeMap<String, BTreeMap<String, T>>,
    len: usize,
}

impl<T> BySeries<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, queue: &str, class: &str) -> Option<&T> {
        self.queues.get(queue)?.get(class)
    }

    /// Returns the value of the only class of a queue, or `None` if it has several or none.
    pub(crate) fn only(&self, queue: &str) -> Option<&T> {
        let classes = self.queues.get(queue)?;
        classes.values().next().filter(|_| classes.len() == 1)
    }

    /// Returns the queues, in order.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &str> {
        self.queues.keys().map(String::as_str)
    }

    pub(crate) fn has_queue(&self, queue: &str) -> bool {
        self.queues.contains_key(queue)
    }

    /// Returns the queues, the classes and the values, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &T)> {
        let queues = self.queues.iter();
        queues.flat_map(|(queue, classes)| {
            let classes = classes.iter();
            classes.map(move |(class, value)| (queue.as_str(), class.as_str(), value))
        })
    }

    pub(crate) fn insert(&mut self, queue: &str, class: &str, value: T) {
        let classes = match self.queues.get_mut(queue) {
            Some(classes) => classes,
            None => self.queues.entry(queue.to_owned()).or_default(),
        };
        if classes.insert(class.to_owned(), value).is_none() {
            self.len += 1;
        }
    }

    /// Returns the names under which a queue and a class are counted: their own, `other` for a class
    /// beyond the most series, or `other` for both if the queue has no series either.
    pub(crate) fn counted_names<'n>(&self, queue: &'n str, class: &'n str) -> (&'n str, &'n str) {
        let (queue, class) = (cut(queue), cut(class));
        if self.get(queue, class).is_some() || self.len < MOST_SERIES - FOR_OTHERS {
            return (queue, class);
        }
        let has_other = self.get(queue, OTHER).is_some();
        if has_other || (self.has_queue(queue) && self.len < MOST_SERIES - 1) {
            return (queue, OTHER);
        }
        (OTHER, OTHER)
    }
}

impl<T: Default> BySeries<T> {
    /// Returns the value of the series under which a queue and a class are counted.
    pub(crate) fn entry(&mut self, queue: &str, class: &str) -> &mut T {
        let (queue, class) = self.counted_names(queue, class);
        if self.get(queue, class).is_none() {
            self.insert(queue, class, T::default());
        }
        // Without an allocation: each end of a job comes here.
        let classes = self.queues.get_mut(queue);
        let value = classes.and_then(|classes| classes.get_mut(class));
        value.unwrap_or_else(|| unreachable!("the series was inserted"))
    }
}

/// Returns a name that can be stored: not empty, and not too long for an index.
pub(crate) fn cut(name: &str) -> &str {
    if name.is_empty() {
        return OTHER;
    }
    let mut end = LONGEST_NAME.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// The runs and jobs that ended since the last contribution, by queue and class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Contribution {
    pub(crate) series: BySeries<Tally>,
    /// Processes that were pruned.
    pub(crate) died: u64,
}

impl Contribution {
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty() && self.died == 0
    }

    pub(crate) fn tally(&mut self, queue: &str, class: &str) -> &mut Tally {
        self.series.entry(queue, class)
    }

    pub(crate) fn merge(&mut self, other: &Contribution) {
        for (queue, class, tally) in other.series.iter() {
            self.tally(queue, class).merge(tally);
        }
        self.died = self.died.saturating_add(other.died);
    }

    /// Writes it as bytes.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let series = self.series.iter();
        let series = series.map(|(queue, class, tally)| {
            let cell = Cell::of(tally.clone());
            (queue, class, StoredCell::from(&cell))
        });
        cell::write(&(self.died, series.collect::<Vec<_>>()))
    }

    /// Reads the bytes of [`pack`](Self::pack).
    ///
    /// # Errors
    /// If the bytes are damaged, or a newer program has written them.
    pub(crate) fn unpack(bytes: &[u8]) -> Result<Self, Unreadable> {
        let (died, series): (u64, Vec<(&str, &str, StoredCell)>) = cell::read(bytes)?;
        let mut contribution = Contribution {
            died,
            ..Contribution::default()
        };
        for (queue, class, stored) in series {
            let tally = Cell::try_from(stored)?.tally;
            contribution.tally(queue, class).merge(&tally);
        }
        Ok(contribution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::history::tally::CountedEnd;

    #[test]
    fn what_is_packed_is_unpacked() {
        let mut one = Contribution {
            died: 3,
            ..Contribution::default()
        };
        one.tally("mail", "send").add(CountedEnd::Finished);
        one.tally("mail", "drop").add(CountedEnd::Crashed);
        one.tally("ä", "").add(CountedEnd::Failed);
        assert_eq!(Contribution::unpack(&one.pack()), Ok(one.clone()));
        assert_eq!(one.series.get("ä", OTHER).unwrap().failed, 1);
        let bytes = one.pack();
        for end in 0..bytes.len() {
            let _ = Contribution::unpack(&bytes[..end]);
        }
    }

    #[test]
    fn there_are_never_more_than_the_most_series() {
        let mut all: BySeries<u64> = BySeries::default();
        for number in 0..3_000 {
            let (queue, class) = (format!("q{}", number % 150), format!("c{number}"));
            *all.entry(&queue, &class) += 1;
            *all.entry(&format!("lone{number}"), "c") += 1;
        }
        assert_eq!(all.len, all.iter().count());
        assert!(all.len <= MOST_SERIES, "{}", all.len);
        let sum: u64 = all.iter().map(|(.., count)| *count).sum();
        assert_eq!(sum, 6_000, "everything is counted somewhere");
        assert!(
            *all.get("q1", OTHER).unwrap() > 0,
            "by queue where possible"
        );
        assert!(*all.get(OTHER, OTHER).unwrap() > 0);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = "ä".repeat(1_000);
        assert_eq!(cut(&name).len(), 254);
        assert_eq!(cut("mail"), "mail");
    }
}
