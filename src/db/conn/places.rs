//! The places of the parameters in the text of a statement.

use crate::db::conn::dialect::Dialect;
use std::borrow::Cow;

/// The place in a text at which a parameter appears first: Diesel writes its name there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParamPlace {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) number: usize,
}

/// Finds these places, and names the parameters where they appear again as Diesel does, by the order of the first
/// appearances. Most texts of Postgres name them so already.
pub(crate) fn placed(text: Cow<'_, str>, dialect: Dialect) -> (Cow<'_, str>, Vec<ParamPlace>) {
    let mut places: Vec<ParamPlace> = Vec::new();
    // The text so far if it is written anew, and the part of the original that is in it.
    let mut written: Option<(String, usize)> = None;
    let mut at = 0;
    while let Some(found) = text[at..].find('$') {
        let start = at + found;
        let digits = text[start + 1..].bytes().take_while(u8::is_ascii_digit);
        at = start + 1 + digits.count();
        let Ok(number) = text[start + 1..at].parse::<usize>() else {
            continue;
        };
        let known = places.iter().position(|place| place.number == number);
        let Some(order) = known.map(|place| place + 1) else {
            let shift = |at: usize| match &written {
                Some((done, up_to)) => done.len() + at - up_to,
                None => at,
            };
            let (start, end) = (shift(start), shift(at));
            places.push(ParamPlace { start, end, number });
            continue;
        };
        let sign = match dialect {
            Dialect::Postgres if order == number => continue,
            Dialect::Postgres => '$',
            Dialect::Sqlite => '?',
        };
        let (done, up_to) = written.get_or_insert_with(|| (String::with_capacity(text.len()), 0));
        done.push_str(&text[*up_to..start]);
        done.push(sign);
        done.push_str(&order.to_string());
        *up_to = at;
    }
    match written {
        Some((mut done, up_to)) => {
            done.push_str(&text[up_to..]);
            (Cow::Owned(done), places)
        }
        None => (text, places),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text as Diesel gets it, `@` for each parameter that it names itself, and the numbers of these.
    fn walked(text: &str, dialect: Dialect) -> (String, Vec<usize>) {
        let (text, places) = placed(text.into(), dialect);
        let (mut out, mut after) = (String::new(), 0);
        for place in &places {
            out += &text[after..place.start];
            out.push('@');
            after = place.end;
        }
        out += &text[after..];
        (out, places.into_iter().map(|place| place.number).collect())
    }

    #[test]
    fn a_parameter_has_one_value_wherever_it_appears() {
        let text = "a = $1 AND b = $2 OR a > $1";
        let numbers = vec![1, 2];
        let expected = |text: &str| (text.to_owned(), numbers.clone());
        assert_eq!(
            walked(text, Dialect::Postgres),
            expected("a = @ AND b = @ OR a > $1")
        );
        assert_eq!(
            walked(text, Dialect::Sqlite),
            expected("a = @ AND b = @ OR a > ?1")
        );
    }

    #[test]
    fn parameters_are_named_by_their_first_appearances() {
        let text = "$3, $1, $3 + $1, $12, $1";
        let numbers = vec![3, 1, 12];
        let expected = |text: &str| (text.to_owned(), numbers.clone());
        assert_eq!(
            walked(text, Dialect::Postgres),
            expected("@, @, $1 + $2, @, $2")
        );
        assert_eq!(
            walked(text, Dialect::Sqlite),
            expected("@, @, ?1 + ?2, @, ?2")
        );
    }

    #[test]
    fn a_sign_without_a_number_is_text() {
        for dialect in [Dialect::Postgres, Dialect::Sqlite] {
            let text = "x -> '$.a' = $1 AND 'ü$'";
            assert_eq!(
                walked(text, dialect),
                ("x -> '$.a' = @ AND 'ü$'".to_owned(), vec![1])
            );
        }
        let none = placed("SELECT 1".into(), Dialect::Postgres);
        assert_eq!(none, (Cow::Borrowed("SELECT 1"), vec![]));
    }
}
