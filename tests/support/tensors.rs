//! What is in a safetensors file, read by the crate that is not refmill's writer.

use std::collections::HashMap;

use safetensors::{Dtype, SafeTensors};

use super::fixtures::fixture;
use super::scratch::Scratch;

/// A recipe for looking at pixels: every sRGB code of the 48 x 32 card as it is, on a dark blue background.
pub const PIXELS: &str = r##"
name = "pixels"
background = "#102030"

[[tensor]]
name = "pixels"
fit = "stretch"
width = 48
height = 32
filter = "bicubic"
layout = "nhwc"
dtype = "u8"
"##;

/// Width and height of every fixture, upright.
pub const CARD: [usize; 2] = [48, 32];

/// A tensor file that was read.
#[derive(Debug)]
pub struct Tensors {
    pub metadata: HashMap<String, String>,
    pub tensors: HashMap<String, Tensor>,
}

/// One tensor of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Tensors {
    pub fn parse(bytes: &[u8]) -> Self {
        let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
        let file = SafeTensors::deserialize(bytes).unwrap();
        let tensor = |view: safetensors::tensor::TensorView<'_>| Tensor {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            data: view.data().to_vec(),
        };
        let tensors = file.tensors().into_iter().map(|(name, view)| (name, tensor(view))).collect();
        Self { metadata: header.metadata().clone().unwrap(), tensors }
    }

    /// Name, element type and shape of each tensor, sorted by name.
    pub fn form(&self) -> Vec<(&str, Dtype, &[usize])> {
        let mut form: Vec<_> =
            self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.dtype, tensor.shape.as_slice())).collect();
        form.sort_by_key(|(name, ..)| *name);
        form
    }

    /// One pixel of a tensor that [`PIXELS`] made.
    pub fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let [width, height] = CARD;
        let tensor = &self.tensors["pixels"];
        assert_eq!((tensor.dtype, tensor.shape.as_slice()), (Dtype::U8, [1, height, width, 3].as_slice()));
        let at = (y * width + x) * 3;
        tensor.data[at..at + 3].try_into().unwrap()
    }

    /// The four quarters of the card at their centres, outside of the window that some of the fixtures have: upper
    /// left, upper right, lower left, lower right.
    pub fn corners(&self) -> [[u8; 3]; 4] {
        [(11, 7), (36, 7), (11, 24), (36, 24)].map(|(x, y)| self.pixel(x, y))
    }
}

impl Scratch {
    /// The tensor file that was written to `name`.
    pub fn tensors(&self, name: &str) -> Tensors {
        Tensors::parse(&self.read(name))
    }
}

/// The tensors of `images/plain.jpg` by a recipe.
pub fn derived(recipe: &str) -> Tensors {
    let scratch = Scratch::new();
    let image = fixture("images/plain.jpg");
    scratch.run([image.to_str().unwrap(), "--recipe", recipe, "--no-image"]).with_code(0);
    scratch.tensors("out/plain.safetensors")
}

/// Asserts that no channel differs by more than `tolerance`.
#[track_caller]
pub fn assert_near(got: &[[u8; 3]], wanted: &[[u8; 3]], tolerance: u8, what: &str) {
    let near = got.as_flattened().iter().zip(wanted.as_flattened()).all(|(a, b)| a.abs_diff(*b) <= tolerance);
    assert!(near && got.len() == wanted.len(), "{what}: {got:?}, not {wanted:?} within {tolerance}");
}
