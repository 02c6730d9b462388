//! The line in which a job waits that passes several gates at once, or that of a share or of a rate.

use crate::db::model::new_row::NewRow;

/// The characters between the keys of a line, and before its concurrency key. No key of a rate has a control character, no
/// tenant, and no queue whose threads are shared.
const BETWEEN: char = '\u{1f}';
const LIMIT: char = '\u{1e}';

/// The character before the queue of a line whose jobs wait for their share, and the one before its tenant.
pub(crate) const FAIR: char = '\u{1d}';
const TENANT: char = '\u{1c}';

/// The gates that the jobs of one line pass, all at once. Its name is stored with the job, in a column of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GateLine {
    /// Whose share of which queue its jobs take.
    pub(crate) share: Option<ShareOf>,
    /// The keys of its rates.
    pub(crate) rates: Vec<String>,
    /// The concurrency key.
    pub(crate) limit: Option<String>,
}

/// A tenant of a queue whose threads are shared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShareOf {
    pub(crate) queue: String,
    pub(crate) tenant: String,
}

impl ShareOf {
    /// Returns the name by which the shares of a queue are requested, and locked.
    pub(crate) fn gate(queue: &str) -> String {
        format!("{FAIR}{queue}")
    }

    /// Returns the name of the line of jobs of a tenant that have no other gate.
    pub(crate) fn line(queue: &str, tenant: &str) -> String {
        format!("{FAIR}{queue}{TENANT}{tenant}")
    }

    /// Returns the queue of such a name.
    pub(crate) fn queue_of(name: &str) -> Option<&str> {
        let queue = name.strip_prefix(FAIR)?;
        (!queue.contains(TENANT)).then_some(queue)
    }
}

impl GateLine {
    /// Returns the name of the line.
    pub(crate) fn name(&self) -> String {
        let mut name = String::new();
        if let Some(ShareOf { queue, tenant }) = &self.share {
            name.push_str(&ShareOf::line(queue, tenant));
        }
        for key in &self.rates {
            if !name.is_empty() {
                name.push(BETWEEN);
            }
            name.push_str(key);
        }
        if let Some(limit) = &self.limit {
            name.push(LIMIT);
            name.push_str(limit);
        }
        name
    }

    /// Reads a name.
    pub(crate) fn of(name: &str) -> Self {
        let (keys, limit) = match name.split_once(LIMIT) {
            Some((keys, limit)) => (keys, Some(limit.to_owned())),
            None => (name, None),
        };
        let shared = keys.strip_prefix(FAIR);
        let shared = shared.and_then(|keys| keys.split_once(TENANT));
        let (share, rates) = match shared {
            Some((queue, keys)) => {
                let (tenant, rates) = keys.split_once(BETWEEN).unwrap_or((keys, ""));
                let (queue, tenant) = (queue.to_owned(), tenant.to_owned());
                (Some(ShareOf { queue, tenant }), rates)
            }
            None => (None, keys),
        };
        let rates = rates.split(BETWEEN).filter(|key| !key.is_empty());
        GateLine {
            share,
            rates: rates.map(str::to_owned).collect(),
            limit,
        }
    }

    /// Returns the key of its rate, if that is its only gate.
    pub(crate) fn only_rate(&self) -> Option<&str> {
        match (&self.share, &self.rates[..], &self.limit) {
            (None, [key], None) => Some(key),
            _ => None,
        }
    }
}

impl NewRow {
    /// Returns whether the job waits in a line: for a share, or for rates.
    pub(crate) fn has_line(&self) -> bool {
        self.is_shared || !self.rates.is_empty()
    }

    /// Returns the line in which a job with a share or with rates waits.
    pub(crate) fn gate(&self) -> Option<String> {
        if !self.has_line() {
            return None;
        }
        // Jobs of an ordered key wait in one line, whatever their rates and tenants are.
        let is_ordered = self.limit.as_ref().is_some_and(|limit| limit.ordered);
        let tenant = self
            .tenant
            .as_ref()
            .filter(|_| self.is_shared && !is_ordered);
        let rates = self.rates.iter().filter(|_| !is_ordered);
        let line = GateLine {
            share: tenant.map(|tenant| ShareOf {
                queue: self.queue_name.clone(),
                tenant: tenant.clone(),
            }),
            rates: rates.map(|rate| rate.key.clone()).collect(),
            limit: self.concurrency_key().map(str::to_owned),
        };
        Some(line.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let rates = ["api/acme".to_owned(), "api".to_owned()];
        let share = ShareOf {
            queue: "mail".to_owned(),
            tenant: "acme".to_owned(),
        };
        for rates in [&rates[..0], &rates[..1], &rates] {
            for limit in [
                None,
                Some("import/7"),
                Some("a\u{1f}b\u{1e}c\u{1d}d\u{1c}e"),
            ] {
                for share in [None, Some(&share)] {
                    let line = GateLine {
                        share: share.cloned(),
                        rates: rates.to_vec(),
                        limit: limit.map(str::to_owned),
                    };
                    assert_eq!(GateLine::of(&line.name()), line);
                    let is_alone = (share, rates.len(), limit) == (None, 1, None);
                    assert_eq!(line.only_rate().is_some(), is_alone);
                    assert_eq!(ShareOf::queue_of(&line.name()), None);
                }
            }
        }
        assert_eq!(ShareOf::queue_of(&ShareOf::gate("mail")), Some("mail"));
    }
}
