//! Reads attnspec's vectors, and judges functions by them.
//!
//! A function is handed the inputs of a test by name, and returns the numbers of its results, whatever its own format is, or refuses:
//!
//! ```no_run
//! use attnspec_vectors::{Inputs, Vectors};
//! fn softmax(inputs: &Inputs) -> Result<Vec<Vec<f64>>, String> { let scores = inputs.array("scores"); todo!() }
//! let failed = Vectors::open("hard_masked_softmax.json")?.failing("float32", softmax);
//! # Ok::<(), String>(())
//! ```

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
        let json = Json::parse(&String::from_utf8_lossy(&read(path)?))?;
        let name = json.get("tensors").map(Json::text).ok_or("The file names no tensors.")?;
        let tensors = tensors(&read(&path.with_file_name(name))?)?;
        Ok(Vectors { json, tensors })
    }

    /// The ids of the tests of a format that a function fails, of the groups that follow the file's own conventions.
    pub fn failing(&self, format: &str, call: impl Fn(&Inputs) -> Result<Vec<Vec<f64>>, String>) -> Vec<&str> {
        self.tests(format).into_iter().filter(|test| !self.passes(test, &call)).filter_map(|test| test.get("id").map(Json::text)).collect()
    }

    /// How many tests of a format there are, of these groups.
    pub fn number(&self, format: &str) -> usize {
        self.tests(format).len()
    }

    fn tests(&self, format: &str) -> Vec<&Json> {
        let groups = self.json.get("groups").map_or(&[][..], Json::items);
        let ours = |g: &&Json| g.get("format").is_some_and(|x| x.text() == format) && g.get("conventions").is_some_and(|x| x.members().is_empty());
        groups.iter().filter(ours).flat_map(|g| g.get("tests").map_or(&[][..], Json::items)).collect()
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

/// The tensors of a file of safetensors by name.
pub fn tensors(raw: &[u8]) -> Result<BTreeMap<String, Tensor>, String> {
    let length = raw.get(..8).ok_or("The file has no header.")?;
    let begin = 8 + u64::from_le_bytes(length.try_into().unwrap()) as usize;
    let header = raw.get(8..begin).ok_or("The header is cut off.")?;
    let header = Json::parse(std::str::from_utf8(header).map_err(|e| e.to_string())?)?;
    header.members().into_iter().map(|(name, entry)| Ok((name.to_string(), tensor(&raw[begin..], entry)?))).collect()
}

fn tensor(data: &[u8], entry: &Json) -> Result<Tensor, String> {
    let list = |name: &str| entry.get(name).map_or(vec![], |x| x.items().iter().map(|n| n.number() as usize).collect::<Vec<_>>());
    let (shape, offsets) = (list("shape"), list("data_offsets"));
    let raw = offsets.get(1).and_then(|&end| data.get(offsets[0]..end)).ok_or("A tensor is cut off.")?;
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
