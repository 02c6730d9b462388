//! Active Job's envelope: the arguments of a job that Ruby enqueued.
//!
//! Ruby uses keys that start with `_aj_` for values that JSON has no type for. Values with a plain
//! meaning become plain JSON. Everything else is rejected, so that a job never runs with arguments
//! other than those it was enqueued with.

use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde_json::{Error, Map, Value};
use std::cell::RefCell;
use std::collections::HashSet;

/// Reads the argument list of the envelope text `envelope`.
///
/// The list is one hash of fields, or empty for a type without required fields.
pub(crate) fn read<J: DeserializeOwned>(list: Vec<Value>, envelope: &str) -> Result<J, Error> {
    if let Some(number) = too_large(envelope) {
        return Err(refused(&format!(
            "the integer {number}, which needs more than 64 bits"
        )));
    }
    if list.len() > 1 {
        return Err(Error::custom(format!(
            "Ruby passed {} arguments, and a job of Rust takes one: a hash, or keywords, with its fields",
            list.len()
        )));
    }
    match list.into_iter().next() {
        Some(only) => J::deserialize(HashArgument(plain(only)?)),
        None => serde_json::from_str("null").or_else(|_| serde_json::from_str("{}")),
    }
}

fn refused(what: &str) -> Error {
    Error::custom(format!(
        "Ruby passed {what}; pass a text or a number instead"
    ))
}

/// Returns the same value without Ruby's markers.
fn plain(value: Value) -> Result<Value, Error> {
    match value {
        Value::Object(mut fields) => match fields.remove("_aj_globalid") {
            Some(id) => Ok(id),
            None => object(fields),
        },
        Value::Array(items) => items.into_iter().map(plain).collect(),
        other => Ok(other),
    }
}

fn object(mut fields: Map<String, Value>) -> Result<Value, Error> {
    let Some(serializer) = fields.remove("_aj_serialized") else {
        let fields = fields
            .into_iter()
            .filter(|(key, _)| !key.starts_with("_aj_"));
        return fields
            .map(|(key, value)| Ok((key, plain(value)?)))
            .collect();
    };
    let name = serializer.as_str().unwrap_or_default();
    let name = name
        .strip_prefix("ActiveJob::Serializers::")
        .unwrap_or(name);
    match (name, fields.remove("value")) {
        // A duration's value is its seconds; the parts say how Ruby wrote it.
        (
            "SymbolSerializer"
            | "TimeSerializer"
            | "DateSerializer"
            | "DateTimeSerializer"
            | "TimeWithZoneSerializer"
            | "BigDecimalSerializer"
            | "ModuleSerializer"
            | "DurationSerializer",
            Some(value),
        ) => plain(value),
        _ => Err(refused(&format!("an object of `{name}`"))),
    }
}

/// Returns the first integer in JSON text that `serde_json` would round to a float.
pub(crate) fn too_large(json: &str) -> Option<&str> {
    let mut rest = json;
    while let Some(start) = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
    {
        rest = &rest[start..];
        if rest.starts_with('"') {
            rest = after_text(rest);
            continue;
        }
        let end = rest.find(|c: char| !matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9'));
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        let is_integer = !number.contains(['.', 'e', 'E']);
        if is_integer && number.parse::<u64>().is_err() && number.parse::<i64>().is_err() {
            return Some(number);
        }
        rest = after;
    }
    None
}

/// Returns what follows the text at the start of `json`.
fn after_text(json: &str) -> &str {
    let mut is_escaped = false;
    for (index, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return &json[index + 1..],
            _ => {}
        }
    }
    ""
}

/// The one argument. In JSON, a list may represent a struct, field by field; a Ruby array of pairs
/// would then be taken for one.
struct HashArgument(Value);

impl<'de> Deserializer<'de> for HashArgument {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.0.is_array() {
            return Err(Error::custom(format!(
                "Ruby passed an array where `{name}` needs a hash, or keywords, with its fields"
            )));
        }
        self.0.deserialize_struct(name, fields, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit seq tuple tuple_struct map identifier ignored_any
    }
}

// --- The shapes of arguments that were read back already ---

/// The number of shapes that a thread knows. Types whose keys are data would fill its memory.
const MOST: usize = 1024;

/// Integers of this many digits may not fit into 64 bits.
const WIDE: usize = 19;

thread_local! {
    static READ: RefCell<HashSet<u64>> = RefCell::default();
}

/// Returns the shape of arguments that the type `A` has written.
pub(crate) fn shape_of<A: ?Sized>(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = add(FIRST, std::any::type_name::<A>().as_bytes());
    let mut index = 0;
    while index < bytes.len() {
        let start = index;
        match bytes[index] {
            b'"' => {
                index = end_of_text(text, start + 1) + 1;
                // A key is a part of the shape, and a text is not.
                let is_key = bytes.get(index) == Some(&b':');
                hash = add(hash, if is_key { &bytes[start..index] } else { b"\"" });
            }
            b'-' | b'0'..=b'9' => {
                index += digits(&bytes[index..]);
                hash = add(hash, number(&bytes[start..index]));
            }
            other => {
                index += 1;
                hash = add(hash, &[other]);
            }
        }
    }
    hash
}

/// Returns whether this thread has read arguments of this shape.
pub(crate) fn was_read(shape: u64) -> bool {
    READ.with_borrow(|read| read.contains(&shape))
}

/// Notes that arguments of this shape can be read.
pub(crate) fn note_read(shape: u64) {
    READ.with_borrow_mut(|read| {
        if read.len() >= MOST {
            read.clear();
        }
        read.insert(shape);
    });
}

/// Returns the index of the quote that ends a text, in JSON text.
fn end_of_text(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut from = start;
    while let Some(found) = bytes[from..].iter().position(|byte| *byte == b'"') {
        let end = from + found;
        let escapes = bytes[start..end].iter().rev();
        if escapes.take_while(|byte| **byte == b'\\').count() % 2 == 0 {
            return end;
        }
        from = end + 1;
    }
    bytes.len().saturating_sub(1)
}

fn digits(bytes: &[u8]) -> usize {
    let is_part = |byte: &&u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
    bytes.iter().take_while(is_part).count()
}

/// Returns the kind of a number.
fn number(text: &[u8]) -> &[u8] {
    match text {
        _ if !text.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9')) => b"1.0",
        _ if text.len() >= WIDE => text,
        [b'-', ..] => b"-1",
        _ => b"1",
    }
}

/// FNV-1a, by Fowler, Noll and Vo: the first value, and a step.
const FIRST: u64 = 0xcbf2_9ce4_8422_2325;

fn add(hash: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(hash, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Pair {
        a: String,
        b: String,
    }

    fn decoded(argument: &Value) -> Result<Value, String> {
        read(vec![argument.clone()], &argument.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn types_of_ruby_become_plain_json() {
        let of = |name: &str, value: Value| json!({"_aj_serialized": format!("ActiveJob::Serializers::{name}"), "value": value});
        let cases = [
            (
                json!({"_aj_globalid": "gid://app/Widget/1"}),
                json!("gid://app/Widget/1"),
            ),
            (of("SymbolSerializer", json!("a")), json!("a")),
            (
                of("DateSerializer", json!("2026-11-22")),
                json!("2026-11-22"),
            ),
            (of("BigDecimalSerializer", json!("0.1")), json!("0.1")),
        ];
        for (ruby, plain) in cases {
            let list = json!({"it": [ruby, 1.5], "_aj_symbol_keys": ["it"]});
            assert_eq!(decoded(&list), Ok(json!({"it": [plain, 1.5]})));
        }
        let mut duration = of("DurationSerializer", json!(300));
        duration["parts"] = json!([["minutes", 5]]);
        assert_eq!(decoded(&json!({"it": duration})), Ok(json!({"it": 300})));
    }

    #[test]
    fn what_has_no_plain_meaning_is_refused() {
        let range = json!({"_aj_serialized": "ActiveJob::Serializers::RangeSerializer", "begin": 1, "end": 2});
        let error = decoded(&json!({"it": range})).unwrap_err();
        assert!(error.contains("`RangeSerializer`"), "{error}");
        let mine = json!({"_aj_serialized": "MoneySerializer", "value": 1});
        assert!(decoded(&mine).unwrap_err().contains("`MoneySerializer`"));
    }

    #[test]
    fn integers_that_would_become_floats_are_refused() {
        let text = r#"{"x\"1": "18446744073709551616", "n": [1e21, 18446744073709551616]}"#;
        assert_eq!(too_large(text), Some("18446744073709551616"));
        assert_eq!(
            too_large("[-9223372036854775809]"),
            Some("-9223372036854775809")
        );
        assert_eq!(
            too_large("[-9223372036854775808, 18446744073709551615, -0.5]"),
            None
        );
        let error = read::<Value>(Vec::new(), text).unwrap_err().to_string();
        assert!(error.contains("18446744073709551616"), "{error}");
    }

    #[test]
    fn only_one_argument_is_read() {
        let two = read::<Value>(vec![json!({"a": 1}), json!("dropped")], "").unwrap_err();
        assert!(two.to_string().contains("2 arguments"), "{two}");
    }

    #[test]
    fn an_array_is_no_struct() {
        let pairs = vec![json!([["a", "x"], ["b", "y"]])];
        assert!(read::<Pair>(pairs, "").is_err());
        let error = read::<Pair>(vec![json!(["a", "x"])], "").unwrap_err();
        assert!(error.to_string().contains("`Pair`"), "{error}");
        let list: Vec<u8> = read(vec![json!([1, 2])], "").unwrap();
        assert_eq!(list, [1, 2]);
    }

    #[test]
    fn texts_and_digits_are_no_part_of_a_shape() {
        let shape = shape_of::<()>;
        let first = shape(r#"{"to":"a","n":1,"of":[1.5,null,true]}"#);
        assert_eq!(
            first,
            shape(r#"{"to":"b\\\"}","n":25,"of":[2e9,null,true]}"#)
        );
        for other in [
            r#"{"to":"a","m":1,"of":[1.5,null,true]}"#,
            r#"{"to":"a","n":-1,"of":[1.5,null,true]}"#,
            r#"{"to":"a","n":18446744073709551616,"of":[1.5,null,true]}"#,
            r#"{"to":"a","n":1,"of":[1.5,1.5,true]}"#,
            r#"{"to":"a","n":1,"of":[1,null,true]}"#,
            r#"{"to":"a","n":1,"of":[1.5,null,false]}"#,
            r#"{"to":"a"}"#,
        ] {
            assert_ne!(first, shape(other), "{other}");
        }
        assert_ne!(shape("1"), shape_of::<u8>("1"));
        assert_ne!(shape(r#"{"1":2}"#), shape(r#"{"3":2}"#));
    }

    #[test]
    fn shapes_are_known_up_to_a_number() {
        for shape in 0..2 * MOST as u64 {
            assert!(!was_read(shape));
            note_read(shape);
            assert!(was_read(shape));
        }
        assert!(READ.with_borrow(HashSet::len) <= MOST);
    }
}
