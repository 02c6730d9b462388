//! The shapes of arguments that were read back already, so that most jobs need not be.
//!
//! The shape of JSON text is all of it but its texts and the digits of its numbers. If a type can read
//! one text of a shape, it can read the others, unless it checks its values itself: for those that it
//! writes and refuses, the first job of a shape decides.

use std::cell::RefCell;
use std::collections::HashSet;

/// The number of shapes that a thread knows. Types whose keys are data would fill its memory.
const MOST: usize = 1024;

/// Integers of this many digits may not fit into 64 bits.
const WIDE: usize = 19;

thread_local! {
    static READ: RefCell<HashSet<u64>> = RefCell::default();
}

/// Returns the shape of arguments that the type `A` has written.
pub(crate) fn of<A: ?Sized>(text: &str) -> u64 {
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

    #[test]
    fn texts_and_digits_are_no_part_of_a_shape() {
        let shape = of::<()>;
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
        assert_ne!(shape("1"), of::<u8>("1"));
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
