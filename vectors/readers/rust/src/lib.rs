//! Reads attnspec's vectors, and judges functions by them.
//!
//! A function is handed the inputs of a test by name, and returns the numbers of its results, whatever its own format is, or refuses:
//!
//! ```no_run
//! use attnspec_vectors::{Inputs, Vectors};
//! fn softmax(inputs: &Inputs) -> Result<Vec<Vec<f64>>, String> { let scores = inputs.array("scores"); todo!() }
//! let vectors = Vectors::open("hard_masked_softmax.json")?;
//! let failed = vectors.failing("float32", softmax)?;
//! # Ok::<(), String>(())
//! ```
//!
//! A file is checked as a whole when it is opened: its text, every tensor, and every name of a tensor.

pub mod json;

use json::Json;
use std::{collections::BTreeMap, fs, path::Path};

/// An array of numbers, row by row; masks are 1 where they are true.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

/// The tests of an operation.
pub struct Vectors {
    json: Json,
    tensors: BTreeMap<String, Tensor>,
}

/// The inputs of a test.
pub struct Inputs<'a> {
    told: &'a Json,
    tensors: &'a BTreeMap<String, Tensor>,
}

impl Inputs<'_> {
    /// An input that is an array, if it is given.
    pub fn array(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(self.told.get(name)?.text())
    }

    /// An input that is no array, if it is given.
    pub fn value(&self, name: &str) -> Option<&Json> {
        self.told.get(name)
    }
}

impl Vectors {
    /// Read a file, and the tensors beside it.
    pub fn open(path: impl AsRef<Path>) -> Result<Vectors, String> {
        let path = path.as_ref();
        let read = |p: &Path| fs::read(p).map_err(|e| format!("{}: {e}", p.display()));
        let json = parsed(&read(path)?)?;
        let name = json.get("tensors").map_or("", Json::text);
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', ':']) {
            return Err(format!("`tensors` should be the name of a file in the folder of {}.", path.display()));
        }
        let tensors = tensors(&read(&path.with_file_name(name))?)?;
        Vectors::checked(json, tensors)
    }

    /// The tests of two files that are in memory.
    pub fn read(json: &[u8], safetensors: &[u8]) -> Result<Vectors, String> {
        Vectors::checked(parsed(json)?, tensors(safetensors)?)
    }

    fn checked(json: Json, tensors: BTreeMap<String, Tensor>) -> Result<Vectors, String> {
        let groups = json.get("groups").map_or(&[][..], Json::items);
        if groups.is_empty() {
            return Err("The file has no groups of tests.".into());
        }
        for group in groups {
            let is_object = |name: &str| matches!(group.get(name), Some(Json::Object { .. }));
            let (Some(Json::List(tests)), Some(Json::Text(_)), true) =
                (group.get("tests"), group.get("format"), is_object("conventions"))
            else {
                return Err("A group has no tests, no format or no conventions.".into());
            };
            tests.iter().try_for_each(|test| check(test, &tensors))?;
        }
        Ok(Vectors { json, tensors })
    }

    /// The ids of the tests of a format that a function fails, of the groups that follow the file's own conventions.
    /// An error if there is no such test.
    pub fn failing(
        &self,
        format: &str,
        call: impl Fn(&Inputs) -> Result<Vec<Vec<f64>>, String>,
    ) -> Result<Vec<&str>, String> {
        let failed = self.tests(format)?.into_iter().filter(|test| !self.passes(test, &call));
        Ok(failed.filter_map(|test| test.get("id").map(Json::text)).collect())
    }

    /// How many tests of a format there are, of these groups. An error if there is none.
    pub fn number(&self, format: &str) -> Result<usize, String> {
        Ok(self.tests(format)?.len())
    }

    fn tests(&self, format: &str) -> Result<Vec<&Json>, String> {
        let groups = self.json.get("groups").map_or(&[][..], Json::items).iter();
        let ours = groups.filter(|group| {
            group.get("format").is_some_and(|x| x.text() == format)
                && group.get("conventions").is_some_and(|x| x.members().is_empty())
        });
        let found: Vec<&Json> = ours.flat_map(|group| group.get("tests").map_or(&[][..], Json::items)).collect();
        if found.is_empty() { Err(format!("The file has no tests in the format {format:?}.")) } else { Ok(found) }
    }

    fn passes(&self, test: &Json, call: &impl Fn(&Inputs) -> Result<Vec<Vec<f64>>, String>) -> bool {
        let Some(told) = test.get("inputs") else { return false };
        match (call(&Inputs { told, tensors: &self.tensors }), test.get("outputs")) {
            (Err(_), wanted) => wanted.is_none(),
            (Ok(_), None) => false,
            (Ok(out), Some(wanted)) => {
                let wanted = wanted.members();
                out.len() == wanted.len() && out.iter().zip(wanted).all(|(x, (_, result))| self.within(x, result))
            }
        }
    }

    fn within(&self, out: &[f64], wanted: &Json) -> bool {
        let part = |name: &str| wanted.get(name).and_then(|x| self.tensors.get(x.text()));
        let (Some(lower), Some(upper), Some(budget)) = (part("lower"), part("upper"), part("budget")) else { return false };
        let right = |(i, &x): (usize, &f64)| {
            let (low, high) = (lower.data[i] - budget.data[i], upper.data[i] + budget.data[i]);
            (low <= x && x <= high) || (x.is_nan() && lower.data[i].is_nan()) || budget.data[i].is_infinite()
        };
        out.len() == lower.data.len() && out.iter().enumerate().all(right)
    }
}

fn parsed(bytes: &[u8]) -> Result<Json, String> {
    Json::parse(std::str::from_utf8(bytes).map_err(|e| e.to_string())?)
}

/// Whether a test has what is read from it: an id, inputs that are given, and bounds of one size.
fn check(test: &Json, tensors: &BTreeMap<String, Tensor>) -> Result<(), String> {
    let (Some(Json::Text(id)), Some(Json::Object { by_name: inputs, .. })) = (test.get("id"), test.get("inputs")) else {
        return Err("A test has no id or no inputs.".into());
    };
    for input in inputs.values() {
        match input {
            Json::Object { .. } => return Err(format!("{id} has a formula, which this reader does not read.")),
            Json::Text(name) if name.contains('/') && !tensors.contains_key(name) => {
                return Err(format!("{id} names a tensor that is not in the file."));
            }
            _ => {}
        }
    }
    for (_, output) in test.get("outputs").map_or(vec![], Json::members) {
        let size = |name: &str| Some(tensors.get(output.get(name)?.text())?.data.len());
        match (size("lower"), size("upper"), size("budget")) {
            (Some(lower), Some(upper), Some(budget)) if lower == upper && lower == budget => {}
            _ => return Err(format!("{id} lacks bounds or a budget of one size.")),
        }
    }
    Ok(())
}

/// The tensors of a file of safetensors by name.
pub fn tensors(raw: &[u8]) -> Result<BTreeMap<String, Tensor>, String> {
    let length = raw.first_chunk::<8>().ok_or("The file of tensors has no header.")?;
    let begin = usize::try_from(u64::from_le_bytes(*length)).ok().and_then(|x| x.checked_add(8));
    let (header, data) = begin.and_then(|at| Some((raw.get(8..at)?, raw.get(at..)?))).ok_or("The header is cut off.")?;
    let header = parsed(header)?;
    let entries = header.members().into_iter().filter(|(name, _)| *name != "__metadata__");
    entries.map(|(name, entry)| Ok((name.to_string(), tensor(data, entry)?))).collect()
}

fn tensor(data: &[u8], entry: &Json) -> Result<Tensor, String> {
    let shape = sizes(entry, "shape")?;
    let [from, to] = sizes(entry, "data_offsets")?[..] else { return Err("A tensor has no two offsets.".into()) };
    let raw = data.get(from..to).ok_or("A tensor is cut off.")?;
    let width = match entry.get("dtype").map_or("", Json::text) {
        "F64" | "I64" => 8,
        "F32" => 4,
        "F16" | "BF16" => 2,
        _ => 1,
    };
    let size = shape.iter().try_fold(1usize, |size, &n| size.checked_mul(n)).and_then(|size| size.checked_mul(width));
    if size != Some(raw.len()) {
        return Err("The shape of a tensor does not fit its numbers.".into());
    }
    let wide = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    let data = match entry.get("dtype").map_or("", Json::text) {
        "F64" => raw.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
        "F32" => raw.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect(),
        "BF16" => raw.chunks_exact(2).map(|b| f32::from_bits(u32::from(wide(b)) << 16).into()).collect(),
        "F16" => raw.chunks_exact(2).map(|b| half(wide(b))).collect(),
        "I64" => raw.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
        "BOOL" => raw.iter().map(|&b| b.into()).collect(),
        other => return Err(format!("There is no type {other:?}.")),
    };
    Ok(Tensor { shape, data })
}

/// The sizes of a list of a tensor: whole numbers from 0 to 2⁵³.
fn sizes(entry: &Json, name: &str) -> Result<Vec<usize>, String> {
    let Some(Json::List(items)) = entry.get(name) else { return Err(format!("A tensor has no {name}.")) };
    let size = |item: &Json| match item.number() {
        x if x >= 0.0 && x <= 2f64.powi(53) && x.fract() == 0.0 => Ok(x as usize),
        x => Err(format!("{x} in {name} is no size.")),
    };
    items.iter().map(size).collect()
}

fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        0 => fraction * 2f64.powi(-24),
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}
