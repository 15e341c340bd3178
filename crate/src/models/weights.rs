//! The weights a model declares while it is built, and the sink that fills them while a file streams in.
//!
//! A model is built from its config alone, before any weight is there. So the file's header is enough to find missing,
//! unused and misshapen tensors, before the bulk of the file is downloaded.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use weights_loader::{LoadError, SafetensorsIndex, TensorInfo, TensorSink};

use super::names::{Component, Name, checkpoint_name};
use crate::{
    Error,
    engine::{Eager, Engine, WeightRole},
};

/// A declared weight: the shape that follows from the config, and the engine's handle.
struct Declared<E: Engine> {
    shape: Vec<usize>,
    handle: E::Weight,
}

/// The declarations of one model, and the prefix under which the next ones go.
pub struct Weights<'a, E: Engine> {
    engine: &'a E,
    prefix: String,
    declared: Rc<RefCell<BTreeMap<String, Declared<E>>>>,
}

impl<'a, E: Engine> Weights<'a, E> {
    /// No declaration yet, empty prefix.
    pub fn new(engine: &'a E) -> Self {
        Self {
            engine,
            prefix: String::new(),
            declared: Rc::default(),
        }
    }

    /// The same declarations under `prefix.name`.
    #[must_use]
    pub fn pp(&self, name: impl std::fmt::Display) -> Self {
        let prefix = if self.prefix.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.prefix)
        };
        Self {
            engine: self.engine,
            prefix,
            declared: Rc::clone(&self.declared),
        }
    }

    /// Declares `prefix.name`.
    #[must_use]
    pub fn declare(&self, name: &str, role: WeightRole, shape: &[usize]) -> E::Weight {
        let name = self.pp(name).prefix;
        let handle = self.engine.declare(&name, role, shape);
        let declared = Declared {
            shape: shape.to_vec(),
            handle: handle.clone(),
        };
        self.declared.borrow_mut().insert(name, declared);
        handle
    }

    /// Number of values declared so far.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.declared
            .borrow()
            .values()
            .map(|declared| declared.shape.iter().map(|&n| n as u64).product::<u64>())
            .sum()
    }
}

impl<'a, E: Eager> Weights<'a, E> {
    /// A sink that fills these weights from a file of `component`.
    #[must_use]
    pub fn into_sink(self, component: Component, file: &str) -> WeightSink<'a, E> {
        WeightSink {
            weights: self,
            component,
            file: file.to_owned(),
            bytes: Vec::new(),
        }
    }
}

/// Fills declared weights from a stream, one tensor in memory at a time.
pub struct WeightSink<'a, E: Eager> {
    weights: Weights<'a, E>,
    component: Component,
    file: String,
    bytes: Vec<u8>,
}

impl<E: Eager> WeightSink<'_, E> {
    /// The declared name of a tensor that is to be kept.
    fn wanted(&self, tensor: &TensorInfo) -> Option<String> {
        match checkpoint_name(self.component, &tensor.name) {
            Name::Weight(name) => Some(name),
            Name::Ignored => None,
        }
    }
}

impl<E: Eager> TensorSink for WeightSink<'_, E> {
    fn begin(&mut self, index: &SafetensorsIndex) -> Result<(), LoadError> {
        let declared = self.weights.declared.borrow();
        let declared = declared
            .iter()
            .map(|(name, weight)| (name.as_str(), weight.shape.as_slice()))
            .collect();
        check_header(&self.file, self.component, index, &declared)
    }

    fn chunk(
        &mut self,
        tensor: &TensorInfo,
        _offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), LoadError> {
        if self.wanted(tensor).is_some() {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn end(&mut self, tensor: &TensorInfo) -> Result<(), LoadError> {
        let Some(name) = self.wanted(tensor) else {
            return Ok(());
        };
        let bytes = std::mem::take(&mut self.bytes);
        let declared = self.weights.declared.borrow();
        let Some(weight) = declared.get(&name) else {
            return Ok(());
        };
        self.weights
            .engine
            .upload(&weight.handle, tensor, &bytes)
            .map_err(|error| match error {
                Error::Load(error) => error,
                other => LoadError::Storage {
                    why: other.to_string(),
                },
            })
    }
}

/// Holds a file's header against the declared weights and their shapes, before the bulk of the file comes.
pub(super) fn check_header(
    file: &str,
    component: Component,
    index: &SafetensorsIndex,
    declared: &BTreeMap<&str, &[usize]>,
) -> Result<(), LoadError> {
    let mut missing = declared.clone();
    let mut unused = Vec::new();
    for tensor in &index.tensors {
        let Name::Weight(name) = checkpoint_name(component, &tensor.name) else {
            continue;
        };
        let Some(shape) = declared.get(name.as_str()) else {
            unused.push(tensor.name.as_str());
            continue;
        };
        if missing.remove(name.as_str()).is_none() {
            return Err(LoadError::Header {
                name: file.to_owned(),
                why: format!("it holds {name} under two names"),
            });
        }
        if !same_shape(&tensor.shape, shape) {
            return Err(LoadError::ShapeMismatch {
                name: tensor.name.clone(),
                expected: shape.to_vec(),
                got: tensor.shape.clone(),
            });
        }
        if !tensor.dtype.is_readable() {
            return Err(LoadError::UnsupportedDtype {
                name: tensor.name.clone(),
                dtype: tensor.dtype.to_string(),
            });
        }
    }
    if !missing.is_empty() {
        return Err(LoadError::MissingTensor {
            file: file.to_owned(),
            names: some_names(missing.keys().copied()),
        });
    }
    if !unused.is_empty() {
        return Err(LoadError::UnusedTensor {
            file: file.to_owned(),
            names: some_names(unused.into_iter()),
        });
    }
    Ok(())
}

/// Original VAE files keep the attention's linear layers as 1x1 convolutions: trailing ones do not count.
fn same_shape(got: &[usize], expected: &[usize]) -> bool {
    let core = |shape: &[usize]| match shape {
        [out, channels, 1, 1] => vec![*out, *channels],
        other => other.to_vec(),
    };
    core(got) == core(expected)
}

/// The first names of a list, and how many more there are.
fn some_names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const SHOWN: usize = 5;
    let names: Vec<_> = names.collect();
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        format!("{shown} and {} more", names.len() - SHOWN)
    } else {
        shown
    }
}
