//! Reads attnspec's vectors, and judges functions by them.
//!
//! A function is handed the inputs of a test by name, and returns the numbers of its results, whatever its own format is, or refuses:
//!
//! ```no_run
//! use attnspec_vectors::{Declared, Inputs, Outcome, Refusal, Vectors};
//! fn softmax(inputs: &Inputs) -> Result<Vec<Vec<f64>>, Refusal> { let scores = inputs.array("scores"); todo!() }
//! let vectors = Vectors::open("hard_masked_softmax.json")?;
//! let declared = Declared { arithmetic: "float32", features: &["mask"], conventions: &[] };
//! for judgement in vectors.judge(&declared, softmax)? {
//!     println!("{judgement}");
//!     assert_ne!(judgement.outcome, Outcome::Fail);
//! }
//! # Ok::<(), String>(())
//! ```
//!
//! A file is checked as a whole when it is opened: its text, every tensor, and every name of a tensor.

pub mod json;

mod judging;

pub use judging::{Declared, Judgement, Outcome, Refusal};

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
            if !is_list_of_texts(group.get("features")) {
                return Err("The features of a group are not names.".into());
            }
            tests.iter().try_for_each(|test| check(test, &tensors))?;
        }
        Ok(Vectors { json, tensors })
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
    let readings = test.get("readings").map_or(&[][..], Json::items);
    let has_names = [test.get("rests_on"), test.get("kills")].into_iter().all(is_list_of_texts);
    if !has_names || readings.iter().any(|reading| !matches!(reading.get("conventions"), Some(Json::Object { .. }))) {
        return Err(format!("{id} has a list that is not one of names, or a reading without conventions."));
    }
    for (_, output) in [test].into_iter().chain(readings).flat_map(|x| x.get("outputs").map_or(vec![], Json::members)) {
        let size = |name: &str| Some(tensors.get(output.get(name)?.text())?.data.len());
        match (size("lower"), size("upper"), size("budget")) {
            (Some(lower), Some(upper), Some(budget)) if lower == upper && lower == budget => {}
            _ => return Err(format!("{id} lacks bounds or a budget of one size.")),
        }
    }
    Ok(())
}

/// Whether a member, if it is there, is a list of strings.
fn is_list_of_texts(member: Option<&Json>) -> bool {
    member.is_none_or(|x| matches!(x, Json::List(items) if items.iter().all(|item| matches!(item, Json::Text(_)))))
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
