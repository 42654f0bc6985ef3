//! Arrays: nested as deep as they have dimensions.

use std::fmt::Write as _;
use std::sync::Arc;

use mainstay_sql::Value;

use super::{Decoder, Garbled, fixed};
use crate::text;

/// PostgreSQL's own limit.
const DIMENSIONS_MAX: usize = 6;

struct Dimension {
    length: usize,
    lower: i32,
}

/// An array whose lower bounds are 1 is an [`Value::Array`]; any other keeps its bounds as text.
pub(super) fn decode(raw: &[u8], element: &Decoder, name: &Arc<str>) -> Result<Value, Garbled> {
    let mut rest = raw;
    let dimension_count = usize::try_from(take_i32(&mut rest)?).map_err(|_| Garbled)?;
    if dimension_count > DIMENSIONS_MAX {
        return Err(Garbled);
    }
    let (_has_null, _element_oid) = (take_i32(&mut rest)?, take_i32(&mut rest)?);
    let mut dimensions = Vec::with_capacity(dimension_count);
    for _ in 0..dimension_count {
        let length = usize::try_from(take_i32(&mut rest)?).map_err(|_| Garbled)?;
        dimensions.push(Dimension {
            length,
            lower: take_i32(&mut rest)?,
        });
    }
    let items = level(&dimensions, &mut rest, element)?;
    if !rest.is_empty() {
        return Err(Garbled);
    }
    if dimensions.iter().all(|d| d.lower == 1) {
        return Ok(items);
    }
    Ok(with_bounds(&dimensions, &items, name))
}

fn level(dimensions: &[Dimension], rest: &mut &[u8], element: &Decoder) -> Result<Value, Garbled> {
    let Some((dimension, inner)) = dimensions.split_first() else {
        return Ok(Value::Array(Vec::new()));
    };
    // Each element takes at least the 4 bytes of its length, which bounds what is set aside.
    let mut items = Vec::with_capacity(dimension.length.min(rest.len() / 4));
    for _ in 0..dimension.length {
        items.push(if inner.is_empty() {
            item(rest, element)?
        } else {
            level(inner, rest, element)?
        });
    }
    Ok(Value::Array(items))
}

fn item(rest: &mut &[u8], element: &Decoder) -> Result<Value, Garbled> {
    let length = take_i32(rest)?;
    if length == -1 {
        return Ok(Value::Null);
    }
    let length = usize::try_from(length).map_err(|_| Garbled)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(Garbled)?;
    *rest = behind;
    element.decode(bytes)
}

fn take_i32(rest: &mut &[u8]) -> Result<i32, Garbled> {
    let (bytes, behind) = rest.split_at_checked(4).ok_or(Garbled)?;
    *rest = behind;
    Ok(i32::from_be_bytes(fixed(bytes)?))
}

fn with_bounds(dimensions: &[Dimension], items: &Value, name: &Arc<str>) -> Value {
    let mut text = String::new();
    for d in dimensions {
        let upper = i64::from(d.lower) + d.length as i64 - 1;
        // Writing to a String cannot fail.
        let _ = write!(text, "[{}:{upper}]", d.lower);
    }
    text.push('=');
    text::write_value(items, &mut text);
    Value::Other {
        type_name: name.clone(),
        text,
    }
}
