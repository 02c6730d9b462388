//! Finds floats that JSON has no number for: `serde_json` writes them as `null`.

use serde::Serialize;
use serde::ser::{
    Error, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use std::fmt;

/// Returns the path and the value of a float that is not finite.
pub(crate) fn find<T: Serialize + ?Sized>(value: &T) -> Option<(String, f64)> {
    let found = value.serialize(Finite).err()?;
    Some((found.path, found.value?))
}

/// Returns a path, one step longer at its start.
pub(crate) fn joined(name: &str, rest: &str) -> String {
    let dot = if rest.is_empty() || rest.starts_with('[') {
        ""
    } else {
        "."
    };
    format!("{name}{dot}{rest}")
}

/// A float that is not finite. Each level around it prepends its name to the path.
#[derive(Debug)]
struct NotFinite {
    path: String,
    /// `None` if the value cannot be serialized.
    value: Option<f64>,
}

impl NotFinite {
    fn below(mut self, name: &str) -> Self {
        self.path = joined(name, &self.path);
        self
    }
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl std::error::Error for NotFinite {}

impl Error for NotFinite {
    fn custom<T: fmt::Display>(_: T) -> Self {
        NotFinite {
            path: String::new(),
            value: None,
        }
    }
}

type Checking = Result<(), NotFinite>;

/// Writes nothing.
#[derive(Clone, Copy)]
struct Finite;

/// The items of a list, or the entries of an object.
#[derive(Default)]
struct Parts {
    index: usize,
    key: String,
}

impl Parts {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Checking {
        let index = self.index;
        self.index += 1;
        let item = value.serialize(Finite);
        item.map_err(|found| found.below(&format!("[{index}]")))
    }
}

fn field<T: Serialize + ?Sized>(name: &str, value: &T) -> Checking {
    value.serialize(Finite).map_err(|found| found.below(name))
}

impl Serializer for Finite {
    type Ok = ();
    type Error = NotFinite;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    fn serialize_f64(self, value: f64) -> Checking {
        if value.is_finite() {
            return Ok(());
        }
        Err(NotFinite {
            path: String::new(),
            value: Some(value),
        })
    }

    fn serialize_f32(self, value: f32) -> Checking {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Checking {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Checking {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Checking {
        field(variant, value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts, NotFinite> {
        Ok(Parts::default())
    }

    fn serialize_tuple(self, _: usize) -> Result<Parts, NotFinite> {
        Ok(Parts::default())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Parts, NotFinite> {
        Ok(Parts::default())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Parts, NotFinite> {
        Ok(Parts::default())
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Parts, NotFinite> {
        Ok(Parts::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts, NotFinite> {
        Ok(Parts::default())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Parts, NotFinite> {
        Ok(Parts::default())
    }

    fn serialize_bool(self, _: bool) -> Checking {
        Ok(())
    }

    fn serialize_i8(self, _: i8) -> Checking {
        Ok(())
    }

    fn serialize_i16(self, _: i16) -> Checking {
        Ok(())
    }

    fn serialize_i32(self, _: i32) -> Checking {
        Ok(())
    }

    fn serialize_i64(self, _: i64) -> Checking {
        Ok(())
    }

    fn serialize_i128(self, _: i128) -> Checking {
        Ok(())
    }

    fn serialize_u8(self, _: u8) -> Checking {
        Ok(())
    }

    fn serialize_u16(self, _: u16) -> Checking {
        Ok(())
    }

    fn serialize_u32(self, _: u32) -> Checking {
        Ok(())
    }

    fn serialize_u64(self, _: u64) -> Checking {
        Ok(())
    }

    fn serialize_u128(self, _: u128) -> Checking {
        Ok(())
    }

    fn serialize_char(self, _: char) -> Checking {
        Ok(())
    }

    fn serialize_str(self, _: &str) -> Checking {
        Ok(())
    }

    fn serialize_bytes(self, _: &[u8]) -> Checking {
        Ok(())
    }

    fn serialize_none(self) -> Checking {
        Ok(())
    }

    fn serialize_unit(self) -> Checking {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Checking {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Checking {
        Ok(())
    }
}

impl SerializeSeq for Parts {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Checking {
        self.item(value)
    }

    fn end(self) -> Checking {
        Ok(())
    }
}

impl SerializeTuple for Parts {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Checking {
        self.item(value)
    }

    fn end(self) -> Checking {
        Ok(())
    }
}

impl SerializeTupleStruct for Parts {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Checking {
        self.item(value)
    }

    fn end(self) -> Checking {
        Ok(())
    }
}

impl SerializeTupleVariant for Parts {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Checking {
        self.item(value)
    }

    fn end(self) -> Checking {
        Ok(())
    }
}

impl SerializeMap for Parts {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Checking {
        let key = serde_json::to_string(key).unwrap_or_default();
        self.key = key.trim_matches('"').to_owned();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Checking {
        field(&self.key, value)
    }

    fn end(self) -> Checking {
        Ok(())
    }
}

impl SerializeStruct for Parts {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Checking {
        field(name, value)
    }

    fn end(self) -> Checking {
        Ok(())
    }
}

impl SerializeStructVariant for Parts {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Checking {
        field(name, value)
    }

    fn end(self) -> Checking {
        Ok(())
    }
}
