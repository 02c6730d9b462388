//! The values of one field of a cron schedule, in words.

/// The values of a field, as bits.
pub(crate) struct ValueSet {
    bits: u64,
    first: u32,
    last: u32,
}

impl ValueSet {
    /// Values from `first` to `last`.
    pub(crate) fn new(bits: u64, first: u32, last: u32) -> Self {
        ValueSet { bits, first, last }
    }

    pub(crate) fn bits(&self) -> u64 {
        self.bits
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = u32> + '_ {
        (self.first..=self.last).filter(|value| self.bits >> value & 1 == 1)
    }

    pub(crate) fn count(&self) -> u32 {
        self.bits.count_ones()
    }

    pub(crate) fn is_all(&self) -> bool {
        self.count() == self.last - self.first + 1
    }

    pub(crate) fn single(&self) -> Option<u32> {
        self.values().next().filter(|_| self.count() == 1)
    }

    /// Returns the first and the last value if there is none missing between them.
    pub(crate) fn range(&self) -> Option<(u32, u32)> {
        let (first, last) = (self.values().next()?, self.values().last()?);
        (self.count() == last - first + 1).then_some((first, last))
    }

    /// Returns the distance of the values if they are evenly spread over the whole field.
    pub(crate) fn step(&self) -> Option<u32> {
        let whole = self.last - self.first + 1;
        let step = whole
            .checked_div(self.count())
            .filter(|step| whole.is_multiple_of(*step))?;
        let spread = (self.first..=self.last).step_by(step as usize);
        (self.count() > 1 && spread.eq(self.values())).then_some(step)
    }

    /// Returns the first and the last value of each run without a gap.
    pub(crate) fn runs(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for value in self.values() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == value => *last = value,
                _ => runs.push((value, value)),
            }
        }
        runs
    }

    /// Returns `1, 5 and 10 to 20`.
    pub(crate) fn listed(&self, name: impl Fn(u32) -> String) -> String {
        let parts = self
            .runs()
            .into_iter()
            .flat_map(|(first, last)| match last - first {
                0 => vec![name(first)],
                1 => vec![name(first), name(last)],
                _ => vec![format!("{} to {}", name(first), name(last))],
            });
        listed(&parts.collect::<Vec<_>>())
    }
}

/// Returns `a, b and c`.
pub(crate) fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}
