//! The tensors as one safetensors file (<https://github.com/huggingface/safetensors>, "Format"): length of the
//! header, header, data without gaps.
//!
//! The header is written here and not by the `safetensors` crate: there `__metadata__` is a `HashMap`, whose order
//! changes from run to run, and equal input has to give equal bytes, since artifacts are addressed by their hash.
//! Tensors with wide elements come first, so that each is aligned to its own elements, and the header is padded
//! to a multiple of 8 bytes; the crate does both as well. Tests read the files back with the crate.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};

use refmill::failure::{Code, Failure};
use refmill::recipe::Dtype;
use serde::Serialize;

use super::{Derivation, Derived};

const ALIGNMENT: usize = 8;

#[derive(Serialize)]
struct Entry {
    dtype: &'static str,
    shape: [u32; 4],
    data_offsets: [u64; 2],
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Metadata(&'a BTreeMap<String, String>),
    Tensor(Entry),
}

/// Writes `derivation` and returns the bytes written: the same for the same input, always.
///
/// # Errors
/// [`Code::OverLimit`] where `out` is full, [`Code::Internal`] where it fails otherwise.
pub fn write(
    derivation: &Derivation,
    metadata: &BTreeMap<String, String>,
    out: &mut dyn Write,
) -> Result<u64, Failure> {
    let mut tensors: Vec<&Derived> = derivation.tensors.iter().collect();
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.spec.dtype.bytes()));
    let header = header(&tensors, metadata)?;
    let total = tensors.iter().map(|tensor| tensor.bytes.len()).sum::<usize>() + header.len() + ALIGNMENT;
    let write = |out: &mut dyn Write| -> std::io::Result<()> {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        tensors.iter().try_for_each(|tensor| out.write_all(&tensor.bytes))
    };
    write(out).map_err(|error| {
        let code = if error.kind() == ErrorKind::WriteZero { Code::OverLimit } else { Code::Internal };
        Failure::new(code, format!("writing {total} bytes of tensors: {error}"))
    })?;
    Ok(total as u64)
}

fn header(tensors: &[&Derived], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Failure> {
    let mut items = BTreeMap::new();
    if !metadata.is_empty() {
        items.insert("__metadata__", Item::Metadata(metadata));
    }
    let mut start = 0;
    for tensor in tensors {
        let end = start + tensor.bytes.len() as u64;
        let entry = Entry { dtype: dtype(tensor.spec.dtype), shape: tensor.shape, data_offsets: [start, end] };
        items.insert(&tensor.spec.name, Item::Tensor(entry));
        start = end;
    }
    let mut header = serde_json::to_vec(&items)
        .map_err(|error| Failure::new(Code::Internal, format!("writing the safetensors header: {error}")))?;
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    Ok(header)
}

fn dtype(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "F32",
        Dtype::F16 => "F16",
        Dtype::Bf16 => "BF16",
        Dtype::U8 => "U8",
    }
}
