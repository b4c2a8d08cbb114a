//! Several arrays in one operation: small ones of one dtype travel together, large ones by themselves.
//!
//! A model has hundreds of small arrays; one meeting each would cost more than all their numbers. Cost: one copy each way
//! of what is packed.

use std::ops::Range;

use syncline_cluster::Error;
use syncline_tensor::{DType, Shape};

/// Leaves up to this size are packed.
const SMALL: usize = 64 << 10;

/// One array of a nested structure.
#[derive(Debug)]
pub struct Leaf<'a> {
    /// Its place in the structure, such as `layers.0.weight`, which must be the same on all ranks; empty for a lone array.
    pub name: &'a str,
    /// The dtype of its numbers.
    pub dtype: DType,
    /// Its shape, which must be the same on all ranks.
    pub shape: Shape,
    /// Its numbers, which become the result.
    pub bytes: &'a mut [u8],
}

/// One array of a nested structure that is given away while an operation runs in the background.
#[derive(Debug)]
pub struct OwnedLeaf<B> {
    /// As in [`Leaf`].
    pub name: String,
    /// As in [`Leaf`].
    pub dtype: DType,
    /// As in [`Leaf`].
    pub shape: Shape,
    /// What holds its numbers.
    pub array: B,
}

/// The same leaves for the time of a call.
pub(crate) fn borrowed<B: AsMut<[u8]>>(leaves: &mut [OwnedLeaf<B>]) -> Vec<Leaf<'_>> {
    let mut lent = Vec::with_capacity(leaves.len());
    for OwnedLeaf { name, dtype, shape, array } in leaves {
        lent.push(Leaf { name, dtype: *dtype, shape: shape.clone(), bytes: array.as_mut() });
    }
    lent
}

/// Whether each leaf has the bytes that its dtype and shape say.
pub(crate) fn check(leaves: &[Leaf<'_>]) -> Result<(), Error> {
    for (index, leaf) in leaves.iter().enumerate() {
        let expected = leaf.shape.byte_len(leaf.dtype);
        if expected != leaf.bytes.len() {
            let detail = format!("array {index} has {} bytes, {} {} need {expected}", leaf.bytes.len(), leaf.dtype, leaf.shape);
            return Err(Error::ShapeMismatch { operation: "all_reduce".into(), detail });
        }
    }
    Ok(())
}

/// What must be the same on all ranks.
pub(crate) fn structure<'a>(leaves: &[Leaf<'a>]) -> Vec<(&'a str, DType, Shape)> {
    leaves.iter().map(|leaf| (leaf.name, leaf.dtype, leaf.shape.clone())).collect()
}

/// Arrays that are combined in one go.
#[derive(Debug, PartialEq)]
pub(crate) enum Batch {
    /// One leaf where it stands.
    Large(usize),
    /// Small leaves of one dtype, each with its place in the packed bytes.
    Packed(DType, Vec<(usize, Range<usize>)>),
}

/// The batches of a structure, in an order that follows from the structure alone.
pub(crate) fn batches(leaves: &[Leaf<'_>]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for (index, leaf) in leaves.iter().enumerate() {
        if leaf.bytes.len() > SMALL {
            batches.push(Batch::Large(index));
            continue;
        }
        let packed = batches.iter_mut().find_map(|batch| match batch {
            Batch::Packed(dtype, places) if *dtype == leaf.dtype => Some(places),
            _ => None,
        });
        let place = |start: usize| (index, start..start + leaf.bytes.len());
        match packed {
            Some(places) => places.push(place(places.last().map_or(0, |(_, range)| range.end))),
            None => batches.push(Batch::Packed(leaf.dtype, vec![place(0)])),
        }
    }
    batches
}

/// Runs `combine` on each batch.
pub(crate) fn for_each_batch<E>(leaves: &mut [Leaf<'_>], mut combine: impl FnMut(DType, &mut [u8]) -> Result<(), E>) -> Result<(), E> {
    let mut packed = Vec::new();
    for batch in batches(leaves) {
        match batch {
            Batch::Large(index) => combine(leaves[index].dtype, leaves[index].bytes)?,
            Batch::Packed(dtype, places) => {
                packed.clear();
                for (index, _) in &places {
                    packed.extend_from_slice(leaves[*index].bytes);
                }
                combine(dtype, &mut packed)?;
                for (index, range) in places {
                    leaves[index].bytes.copy_from_slice(&packed[range]);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_leaves_of_a_dtype_travel_together() {
        let mut bytes: Vec<Vec<u8>> = [8, SMALL + 4, 0, 12, 4].map(|len| vec![len as u8; len]).to_vec();
        let dtypes = [DType::F32, DType::F32, DType::F32, DType::I32, DType::F32];
        let mut leaves: Vec<Leaf<'_>> = bytes
            .iter_mut()
            .zip(dtypes)
            .map(|(bytes, dtype)| Leaf { name: "", dtype, shape: Shape::new(&[bytes.len() / 4]).expect("small"), bytes })
            .collect();
        check(&leaves).expect("they fit");
        let floats = Batch::Packed(DType::F32, vec![(0, 0..8), (2, 8..8), (4, 8..12)]);
        assert_eq!(batches(&leaves), [floats, Batch::Large(1), Batch::Packed(DType::I32, vec![(3, 0..12)])]);
        let mut seen = Vec::new();
        for_each_batch::<()>(&mut leaves, |dtype, bytes| {
            seen.push((dtype, bytes.len()));
            bytes.iter_mut().for_each(|byte| *byte += 1);
            Ok(())
        })
        .expect("no failure");
        assert_eq!(seen, [(DType::F32, 12), (DType::F32, SMALL + 4), (DType::I32, 12)]);
        assert!(leaves.iter().all(|leaf| leaf.bytes.iter().all(|byte| *byte == leaf.bytes.len() as u8 + 1)));
        leaves[0].shape = Shape::new(&[3]).expect("small");
        assert!(check(&leaves).is_err_and(|error| error.to_string().contains("array 0 has 8 bytes")));
    }
}
