//! Nested values, leaf by leaf: the order that all nodes share, and what travels when a function of the user's reduces them.
//!
//! A leaf is anything but a list or a map. Lists are walked in order, maps by key: numbers ascending, or texts in
//! alphabetical order. A map with both has no order that every language shares, and is refused.

use syncline_cluster::Error;
use syncline_tensor::{DType, Shape};
use syncline_wire::{Fingerprint, FingerprintBuilder, Limits, TensorValue, Value};

/// Calls `visit` with every leaf and its path, such as `layers.0.weight`, in the order that all nodes share.
pub(super) fn walk<'v, 'a>(
    value: &'v mut Value<'a>,
    visit: &mut dyn FnMut(&str, &'v mut Value<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    step(value, &mut String::new(), visit)
}

fn step<'v, 'a>(
    value: &'v mut Value<'a>,
    path: &mut String,
    visit: &mut dyn FnMut(&str, &'v mut Value<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut below = |value: &'v mut Value<'a>, name: &str, path: &mut String| {
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(name);
        let walked = step(value, path, visit);
        path.truncate(length);
        walked
    };
    match value {
        Value::List(items) => items.iter_mut().enumerate().try_for_each(|(index, item)| below(item, &index.to_string(), path)),
        Value::Map(pairs) => {
            let mut order: Vec<(Key, &'v mut Value<'a>)> = Vec::with_capacity(pairs.len());
            for (key, item) in pairs {
                order.push((Key::of(key, path)?, item));
            }
            order.sort_by(|(one, _), (other, _)| one.cmp(other));
            if let Some(both) = order.windows(2).find(|both| both[0].0.is_number() != both[1].0.is_number()) {
                return Err(no_order(path, &format!("the keys {} and {} have no order", both[0].0.text(), both[1].0.text())));
            }
            order.into_iter().try_for_each(|(key, item)| below(item, &key.text(), path))
        }
        leaf => visit(path, leaf),
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(i64),
    Text(String),
}

impl Key {
    fn of(key: &Value<'_>, path: &str) -> Result<Key, Error> {
        match key {
            Value::Int(number) => Ok(Key::Number(*number)),
            Value::Str(text) => Ok(Key::Text(text.as_ref().to_owned())),
            other => Err(no_order(path, &format!("a {} is no key that can be put in order", other.type_name()))),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Key::Number(_))
    }

    fn text(&self) -> String {
        match self {
            Key::Number(number) => number.to_string(),
            Key::Text(text) => text.clone(),
        }
    }
}

fn no_order(path: &str, detail: &str) -> Error {
    let place = if path.is_empty() { String::new() } else { format!(" of `{path}`") };
    Error::ShapeMismatch {
        operation: "all_reduce".into(),
        detail: format!("in the map{place}: {detail}\nhint: use only numbers or only texts"),
    }
}

/// A leaf as numbers in place; `None` for what has none.
pub(super) struct Numbers {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) bytes: Vec<u8>,
}

impl Numbers {
    /// Takes the numbers out of a leaf; a lone number is a tensor without axes.
    pub(super) fn take(path: &str, leaf: &mut Value<'_>) -> Result<Numbers, Error> {
        let lone = || Shape::new(&[]).expect("no axes are a shape");
        match leaf {
            Value::Int(number) => Ok(Numbers { dtype: DType::I64, shape: lone(), bytes: number.to_le_bytes().to_vec() }),
            Value::Float(number) => Ok(Numbers { dtype: DType::F64, shape: lone(), bytes: number.to_le_bytes().to_vec() }),
            Value::Tensor(_) => {
                let Value::Tensor(tensor) = std::mem::take(leaf) else { unreachable!("it was one a moment ago") };
                let (dtype, shape, data) = tensor.into_parts();
                Ok(Numbers { dtype, shape, bytes: data.into_owned() })
            }
            other => Err(Error::ShapeMismatch {
                operation: "all_reduce".into(),
                detail: format!("`{path}` is a {}, which has no sum\nhint: pass a function that reduces it", other.type_name()),
            }),
        }
    }

    /// The leaf they came from, with what became of them.
    pub(super) fn into_leaf(self, was: &Value<'_>) -> Value<'static> {
        let eight = |bytes: &[u8]| <[u8; 8]>::try_from(bytes).expect("a lone number has eight bytes");
        match was {
            Value::Int(_) => Value::Int(i64::from_le_bytes(eight(&self.bytes))),
            Value::Float(_) => Value::Float(f64::from_le_bytes(eight(&self.bytes))),
            _ => Value::Tensor(Box::new(TensorValue::new(self.dtype, self.shape, self.bytes).expect("as many bytes as before"))),
        }
    }
}

/// The identity of a structure: paths and kinds of all leaves, dtypes and shapes of tensors. Numbers in it may differ.
pub(super) fn fingerprint(value: &mut Value<'_>) -> Result<Fingerprint, Error> {
    let mut description: Option<FingerprintBuilder> = Some(Fingerprint::of("nest"));
    walk(value, &mut |path, leaf| {
        let named = description.take().expect("it is put back").text(path, leaf.type_name());
        description = Some(match leaf {
            Value::Tensor(tensor) => named.dtype(tensor.dtype()).shape(tensor.shape().dims()),
            _ => named,
        });
        Ok(())
    })?;
    Ok(description.expect("it was put back").finish())
}

/// The leaves of a value for people, a line each: `layers.0.weight: float32 (3, 2)`.
pub(super) fn structure(value: &mut Value<'_>) -> Result<String, Error> {
    let mut lines = Vec::new();
    walk(value, &mut |path, leaf| {
        lines.push(match leaf {
            Value::Tensor(tensor) => format!("{path}: {} {}", tensor.dtype(), tensor.shape()),
            _ => format!("{path}: {}", leaf.type_name()),
        });
        Ok(())
    })?;
    Ok(lines.join("\n"))
}

/// A value as one message: eight bytes of length, its structure, its bulk.
pub(super) fn to_message(value: &Value<'_>) -> Result<Vec<u8>, Error> {
    let encoded = value.encode(&Limits::default()).map_err(unreadable)?;
    let payload: usize = encoded.payload().iter().map(|piece| piece.len()).sum();
    let mut message = Vec::with_capacity(8 + encoded.meta().len() + payload);
    message.extend((encoded.meta().len() as u64).to_le_bytes());
    message.extend(encoded.meta());
    encoded.payload().iter().for_each(|piece| message.extend(*piece));
    Ok(message)
}

/// What [`to_message`] made elsewhere.
pub(super) fn from_message(message: &[u8]) -> Result<Value<'_>, Error> {
    let cut = || message.split_first_chunk::<8>().and_then(|(len, rest)| rest.split_at_checked(u64::from_le_bytes(*len) as usize));
    let (meta, payload) =
        cut().ok_or_else(|| Error::System { operation: "all_reduce".into(), detail: "a message that is cut short".into() })?;
    Value::decode(meta, payload, &Limits::default()).map_err(unreadable)
}

fn unreadable(error: syncline_wire::WireError) -> Error {
    Error::System { operation: "all_reduce".into(), detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: Vec<(Value<'static>, Value<'static>)>) -> Value<'static> {
        Value::Map(pairs)
    }

    fn paths(value: &mut Value<'_>) -> Result<Vec<String>, Error> {
        let mut paths = Vec::new();
        walk(value, &mut |path, _| {
            paths.push(path.to_owned());
            Ok(())
        })?;
        Ok(paths)
    }

    #[test]
    fn leaves_come_in_an_order_that_does_not_depend_on_insertion() {
        let inner = map(vec![("w".into(), 1.0.into()), ("b".into(), 2.0.into())]);
        let mut value = map(vec![("z".into(), Value::Int(1)), ("a".into(), Value::List(vec![inner, Value::Int(3)]))]);
        assert_eq!(paths(&mut value).expect("in order"), ["a.0.b", "a.0.w", "a.1", "z"]);
        let mut numbers = map(vec![(Value::Int(10), Value::Int(0)), (Value::Int(9), Value::Int(0))]);
        assert_eq!(paths(&mut numbers).expect("in order"), ["9", "10"]);
    }

    #[test]
    fn keys_of_two_kinds_have_no_order() {
        let mut value = map(vec![(Value::Int(1), Value::Int(0)), ("one".into(), Value::Int(0))]);
        let error = paths(&mut value).expect_err("refused").to_string();
        assert!(error.contains("1") && error.contains("one") && error.contains("hint"), "{error}");
    }

    #[test]
    fn structure_is_the_identity_and_numbers_are_not() {
        let of = |mut value: Value<'static>| fingerprint(&mut value).expect("a structure");
        let one = map(vec![("a".into(), Value::Int(1))]);
        assert_eq!(of(one.clone()), of(map(vec![("a".into(), Value::Int(7))])));
        assert_ne!(of(one.clone()), of(map(vec![("b".into(), Value::Int(1))])));
        assert_ne!(of(one), of(map(vec![("a".into(), Value::Float(1.0))])));
    }

    #[test]
    fn a_message_comes_back_and_a_cut_one_is_refused() {
        let value = Value::List(vec![Value::from("loss"), Value::from(0.5), Value::from(vec![7u8; 3000])]);
        let message = to_message(&value).expect("it fits");
        assert_eq!(from_message(&message).expect("whole"), value);
        for cut in [0, 7, 12, message.len() - 1] {
            assert!(from_message(&message[..cut]).is_err(), "{cut}");
        }
    }
}
