//! The names and values of a query or a form, in their order.

/// Names and values, decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// Reads `a=1&b=2`. Bytes that are not UTF-8 are replaced.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(text);
        Pairs(pairs.into_owned().collect())
    }

    /// Returns whether a value contains NUL, which Postgres refuses.
    pub(crate) fn has_nul(&self) -> bool {
        self.0.iter().any(|(_, value)| value.contains('\0'))
    }

    /// Returns the first value of this name; `None` if there is none, or it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let named = self
            .0
            .iter()
            .find(|(other, value)| other == name && !value.is_empty());
        named.map(|(_, value)| value.as_str())
    }

    /// Returns all values of this name.
    pub(crate) fn all<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        let named = self.0.iter().filter(move |(other, _)| other == name);
        named.map(|(_, value)| value.as_str())
    }

    /// Returns whether the name is there, with or without a value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    /// Returns the value as a number, if it is one.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.trim().parse().ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the same pairs with this one instead of those of its name.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut pairs = self.without(name);
        pairs.0.push((name.to_owned(), value.to_owned()));
        pairs
    }

    /// Returns the same pairs without those of this name.
    pub(crate) fn without(&self, name: &str) -> Self {
        let others = self.0.iter().filter(|(other, _)| other != name);
        Pairs(others.cloned().collect())
    }

    /// Returns `?a=1&b=2`, encoded; nothing if there are no pairs.
    pub(crate) fn to_query(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut text = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
        text.extend_pairs(&self.0);
        text.finish()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let owned = |(name, value): (N, V)| (name.into(), value.into());
        Pairs(pairs.into_iter().map(owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_written() {
        let pairs = Pairs::parse(b"state=failed&q=a+b%26&tag=1&tag=2&empty=");
        assert_eq!(pairs.get("q"), Some("a b&"));
        assert_eq!(pairs.all("tag").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(
            (pairs.get("empty"), pairs.has("empty"), pairs.has("x")),
            (None, true, false)
        );
        assert_eq!(Pairs::parse(&pairs.to_query().as_bytes()[1..]), pairs);
        let other = pairs.with("tag", "3").without("q").without("empty");
        assert_eq!(other.to_query(), "?state=failed&tag=3");
        assert_eq!(Pairs::default().to_query(), "");
        assert!(Pairs::parse(b"b=1&a=x%00y").has_nul() && !pairs.has_nul());
    }
}
