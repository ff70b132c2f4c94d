//! Judges a function by the tests of a file: each test passes, fails, or is skipped with the reason.

use crate::{json::Json, Inputs, Tensor, Vectors};
use std::{collections::BTreeSet, fmt};

/// What a function declares: its arithmetic, the optional arguments that it takes, and the conventions in which it
/// differs from the file, such as `("rope_pairing", "half")`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Declared<'a> {
    pub arithmetic: &'a str,
    pub features: &'a [&'a str],
    pub conventions: &'a [(&'a str, &'a str)],
}

/// Why a function returns no numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The call is wrong.
    Refused(String),
    /// The call is right, but the function does not support it: the test is skipped.
    Unsupported(String),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(reason: T) -> Refusal {
        Refusal::Refused(reason.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Pass,
    Fail,
    Skip,
}

/// The outcome of a test. The sentence says why it fails or is skipped. The hints are the known bugs that fail this
/// test, and no test before it in this format: look at the hints of the first test that fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement<'a> {
    pub id: &'a str,
    pub outcome: Outcome,
    pub sentence: String,
    pub hints: Vec<&'a str>,
}

impl fmt::Display for Judgement<'_> {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        write!(to, "{} {}", self.id, format!("{:?}", self.outcome).to_lowercase())?;
        if !self.sentence.is_empty() {
            write!(to, " {}", self.sentence)?;
        }
        if self.hints.is_empty() { Ok(()) } else { write!(to, " Known bugs that this test detects: {}.", self.hints.join(", ")) }
    }
}

type Outputs = Result<Vec<Vec<f64>>, Refusal>;
type Conventions<'a> = Vec<(&'a str, String)>;

impl Vectors {
    /// The judgement of each test of an arithmetic. An error if there is no such test, or if the file does not know a
    /// declared name.
    pub fn judge(&self, declared: &Declared, call: impl Fn(&Inputs) -> Outputs) -> Result<Vec<Judgement<'_>>, String> {
        let groups = list(&self.json, "groups");
        let optional: BTreeSet<&str> = groups.iter().flat_map(|group| texts(group, "features")).collect();
        let differing = self.differing(declared, &optional)?;
        let mut found = Vec::new();
        for group in groups.iter().filter(|group| group.get("format").is_some_and(|x| x.text() == declared.arithmetic)) {
            let conventions = written(group.get("conventions"));
            for test in list(group, "tests") {
                let inputs = members(test, "inputs").into_iter().map(|(name, _)| name).filter(|name| optional.contains(name));
                let needed: BTreeSet<&str> = texts(group, "features").into_iter().chain(inputs).collect();
                let missing: Vec<&str> = needed.into_iter().filter(|name| !declared.features.contains(name)).collect();
                let id = test.get("id").map_or("", Json::text);
                let skip = |sentence: String| Judgement { id, outcome: Outcome::Skip, sentence, hints: vec![] };
                found.push(match chosen(&conventions, test, &differing) {
                    _ if !missing.is_empty() => {
                        skip(format!("It needs features that the function does not take: {}.", missing.join(", ")))
                    }
                    Err(reason) => skip(reason),
                    Ok(reading) => match self.sentence(test, reading, &call) {
                        Err(reason) => skip(reason),
                        Ok(sentence) if sentence.is_empty() => Judgement { id, outcome: Outcome::Pass, sentence, hints: vec![] },
                        Ok(sentence) => Judgement { id, outcome: Outcome::Fail, sentence, hints: texts(test, "kills") },
                    },
                });
            }
        }
        if found.is_empty() { Err(format!("The file has no tests in the format {:?}.", declared.arithmetic)) } else { Ok(found) }
    }

    /// The declared conventions that differ from the file.
    fn differing<'a>(&self, declared: &Declared<'a>, optional: &BTreeSet<&str>) -> Result<Conventions<'a>, String> {
        let (defaults, inputs) = (written(self.json.get("conventions")), members(&self.json, "inputs"));
        let known = |name: &str| inputs.iter().any(|(input, _)| *input == name);
        if let Some(name) = declared.features.iter().find(|name| !optional.contains(*name) && !known(name)) {
            return Err(format!("The file has no feature {name:?}."));
        }
        let is_default = |name: &str| defaults.iter().find(|(other, _)| *other == name);
        let mut found = Vec::new();
        for (name, value) in declared.conventions {
            match is_default(name) {
                None => return Err(format!("The file has no convention {name:?}.")),
                Some((_, usual)) if usual == value => {}
                Some(_) => found.push((*name, value.to_string())),
            }
        }
        Ok(found)
    }

    /// What is wrong with the results of a call, or "". An error says why the function does not support the call.
    fn sentence(&self, test: &Json, reading: &Json, call: &impl Fn(&Inputs) -> Outputs) -> Result<String, String> {
        let Some(told) = test.get("inputs") else { return Ok("The test has no inputs.".into()) };
        let (out, is_valid) = (call(&Inputs { told, tensors: &self.tensors }), !members(reading, "outputs").is_empty());
        match out {
            Err(Refusal::Unsupported(reason)) if is_valid => Err(format!("The function does not support this call: {reason}")),
            Err(Refusal::Refused(reason)) if is_valid => Ok(format!("The function refuses this call: {reason}")),
            Err(_) => Ok(String::new()),
            Ok(out) => Ok(match self.mistake(&out, reading) {
                found if found.is_empty() => found,
                found => found + &self.otherwise(&out, test),
            }),
        }
    }

    /// The conventions under which wrong results are right, as a sentence, or "".
    fn otherwise(&self, out: &[Vec<f64>], test: &Json) -> String {
        let readings = list(test, "readings").iter().filter(|reading| !members(reading, "outputs").is_empty());
        let right = readings.filter(|reading| self.mistake(out, reading).is_empty());
        let names: Vec<String> = right.map(|reading| shown(&written(reading.get("conventions")))).collect();
        if names.is_empty() { String::new() } else { format!(" The results are right for code with {}.", names.join(" or ")) }
    }

    fn mistake(&self, out: &[Vec<f64>], reading: &Json) -> String {
        let wanted = members(reading, "outputs");
        if wanted.is_empty() {
            return "The function returns a result, but should refuse this call.".into();
        }
        if out.len() != wanted.len() {
            return format!("The function returns {} results, but should return {}.", out.len(), wanted.len());
        }
        let mut sentences = out.iter().zip(wanted).map(|(x, (name, result))| self.outside(x, name, result));
        sentences.find(|sentence| !sentence.is_empty()).unwrap_or_default()
    }

    /// The entry that is farthest outside its error limit, as a sentence, or "".
    fn outside(&self, out: &[f64], name: &str, wanted: &Json) -> String {
        let part = |name: &str| wanted.get(name).and_then(|x| self.tensors.get(x.text()));
        let (Some(lower), Some(upper), Some(budget)) = (part("lower"), part("upper"), part("budget")) else {
            return format!("{name} has no bounds.");
        };
        if out.len() != lower.data.len() {
            return format!("{name} has {} numbers, but should have {}.", out.len(), lower.data.len());
        }
        let (mut number, mut worst, mut most) = (0, 0, -1.0);
        for (i, &x) in out.iter().enumerate() {
            let (low, high, limit) = (lower.data[i], upper.data[i], budget.data[i]);
            if (low - limit <= x && x <= high + limit) || (x.is_nan() && low.is_nan()) || limit.is_infinite() {
                continue;
            }
            let distance = (low - x).max(x - high);
            let limits = if limit == 0.0 || x.is_nan() || low.is_nan() { f64::INFINITY } else { distance / limit };
            if limits > most {
                (worst, most) = (i, limits);
            }
            number += 1;
        }
        if number == 0 {
            return String::new();
        }
        let (low, high) = (lower.data[worst] - budget.data[worst], upper.data[worst] + budget.data[worst]);
        format!(
            "{name}[{}]={:.8e}, but should be from {low:.8e} to {high:.8e}: the error is {most:.2e} times its error limit; \
             {number} of {} entries are outside.",
            position(worst, lower),
            out[worst],
            out.len()
        )
    }
}

/// The results that hold under some conventions; an error says why the test has none.
fn chosen<'a>(group: &Conventions, test: &'a Json, differing: &Conventions) -> Result<&'a Json, String> {
    let other: Conventions = group.iter().filter(|pair| !differing.contains(pair)).cloned().collect();
    if !other.is_empty() {
        return Err(format!("It is for code with {}.", shown(&other)));
    }
    let rests_on = texts(test, "rests_on");
    let is_open = |name: &str| rests_on.contains(&name) && !group.iter().any(|(other, _)| *other == name);
    let wanted: Conventions = differing.iter().filter(|(name, _)| is_open(name)).cloned().collect();
    if wanted.is_empty() {
        return Ok(test);
    }
    let is_wanted = |reading: &&Json| {
        let told = written(reading.get("conventions"));
        told.len() == wanted.len() && told.iter().all(|pair| wanted.contains(pair))
    };
    list(test, "readings").iter().find(is_wanted).ok_or_else(|| format!("It has no result for {}.", shown(&wanted)))
}

/// Conventions with their values as texts.
fn written(conventions: Option<&Json>) -> Conventions<'_> {
    let text = |value: &Json| match value {
        Json::Number(x) => format!("{x:?}"),
        other => other.text().to_string(),
    };
    conventions.map_or(vec![], Json::members).into_iter().map(|(name, value)| (name, text(value))).collect()
}

fn shown(conventions: &Conventions) -> String {
    let pairs: Vec<String> = conventions.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(", ")
}

fn list<'a>(from: &'a Json, name: &str) -> &'a [Json] {
    from.get(name).map_or(&[], Json::items)
}

fn texts<'a>(from: &'a Json, name: &str) -> Vec<&'a str> {
    list(from, name).iter().map(Json::text).collect()
}

fn members<'a>(from: &'a Json, name: &str) -> Vec<(&'a str, &'a Json)> {
    from.get(name).map_or(vec![], Json::members)
}

/// The index of an entry, given its place row by row.
fn position(mut place: usize, of: &Tensor) -> String {
    let mut index = Vec::new();
    for &n in of.shape.iter().rev() {
        index.push((place % n).to_string());
        place /= n;
    }
    index.reverse();
    index.join(", ")
}
