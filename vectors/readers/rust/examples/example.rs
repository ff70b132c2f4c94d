//! Right and wrong functions, judged: `cargo run --example example FOLDER ARITHMETIC` prints how many tests each passes,
//! fails and skips, and why.

use attnspec_vectors::{json::Json, Declared, Inputs, Outcome, Refusal, Tensor, Vectors};

type Outputs = Result<Vec<Vec<f64>>, Refusal>;
type Rounding = fn(f64) -> f64;

/// What a mask says of each entry of a shape, with which it broadcasts.
fn allowed(mask: Option<&Tensor>, shape: &[usize]) -> Result<Vec<bool>, String> {
    let size = shape.iter().product();
    let Some(mask) = mask else { return Ok(vec![true; size]) };
    if mask.shape.iter().rev().zip(shape.iter().rev()).any(|(&n, &m)| n != 1 && n != m) {
        return Err("The mask does not fit.".into());
    }
    let entry = |mut place: usize| {
        let (mut at, mut step) = (0, 1);
        for (&n, &m) in mask.shape.iter().rev().zip(shape.iter().rev()) {
            at += if n == 1 { 0 } else { step * (place % m) };
            step *= n;
            place /= m;
        }
        mask.data[at] != 0.0
    };
    Ok((0..size).map(entry).collect())
}

fn rows(scores: &[f64], may: &[bool], n: usize, masks_late: bool, rounded: Rounding) -> Vec<f64> {
    let mut out = Vec::new();
    for (scores, may) in scores.chunks_exact(n.max(1)).zip(may.chunks_exact(n.max(1))) {
        let taken = || scores.iter().zip(may).filter(|(_, &m)| m || masks_late).map(|(&s, _)| s);
        let largest = taken().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = taken().map(|s| (s - largest).exp()).sum();
        out.extend(scores.iter().zip(may).map(|(s, &m)| if m { rounded((s - largest).exp() / total) } else { 0.0 }));
    }
    out
}

fn softmax(inputs: &Inputs, masks_late: bool, rounded: Rounding) -> Outputs {
    let scores = inputs.array("scores").ok_or("scores")?;
    let may = allowed(inputs.array("mask"), &scores.shape)?;
    Ok(vec![rows(&scores.data, &may, scores.shape[scores.shape.len() - 1], masks_late, rounded)])
}

fn attention(inputs: &Inputs, scale: Rounding, rounded: Rounding) -> Outputs {
    let [q, k, v] = ["q", "k", "v"].map(|name| inputs.array(name).expect(name));
    let last = |x: &Tensor, n: usize| x.shape[x.shape.len() - n];
    let (d, n, m, e) = (last(q, 1), last(q, 2), last(k, 2), last(v, 1));
    if d != last(k, 1) || m != last(v, 2) {
        return Err("Shapes do not fit.".into());
    }
    let mut shape = q.shape.clone();
    *shape.last_mut().unwrap() = m;
    let all: usize = shape[..shape.len() - 1].iter().product();
    let score = |row: usize, j: usize| (0..d).map(|c| q.data[row * d + c] * k.data[(row / n * m + j) * d + c]).sum::<f64>() / scale(d as f64);
    let scores: Vec<f64> = (0..all * m).map(|place| score(place / m, place % m)).collect();
    let weights = rows(&scores, &allowed(inputs.array("mask"), &shape)?, m, false, rounded);
    let product = |row: usize, c: usize| {
        let keys = (0..m).filter(|j| weights[row * m + j] != 0.0);
        rounded(keys.map(|j| weights[row * m + j] * v.data[(row / n * m + j) * e + c]).sum())
    };
    Ok(vec![(0..all * e).map(|place| product(place / e, place % e)).collect()])
}

/// Rotates pairs of channels: the pair i of a row of some width is at the places of `pair(i, width)`.
fn rotated(inputs: &Inputs, pair: fn(usize, usize) -> [usize; 2], rounded: Rounding) -> Outputs {
    let x = inputs.array("x").ok_or("x")?;
    let start = inputs.value("start_pos").map_or(0.0, Json::number);
    let [.., n, d] = x.shape[..] else { return Err("x has no rows.".into()) };
    if start < 0.0 {
        return Err("start_pos is negative.".into());
    }
    if d % 2 == 1 {
        return Err(Refusal::Unsupported("head_dim is odd.".into()));
    }
    let mut out = x.data.clone();
    for (row, channels) in x.data.chunks_exact(d.max(1)).enumerate() {
        for i in 0..d / 2 {
            let angle = (start + (row % n) as f64) * 10000f64.powf(-(i as f64) / (d / 2) as f64);
            let [a, b] = pair(i, d);
            out[row * d + a] = rounded(channels[a] * angle.cos() - channels[b] * angle.sin());
            out[row * d + b] = rounded(channels[b] * angle.cos() + channels[a] * angle.sin());
        }
    }
    Ok(vec![out])
}

fn main() -> Result<(), String> {
    let [folder, arithmetic] = [1, 2].map(|n| std::env::args().nth(n).unwrap_or_default());
    let rounded: Rounding = if arithmetic == "float32" { |x| f64::from(x as f32) } else { |x| x };
    let judge = |operation: &str, name: &str, features: &[&str], conventions: &[(&str, &str)], call: &dyn Fn(&Inputs) -> Outputs| {
        let vectors = Vectors::open(format!("{folder}/{operation}.json"))?;
        let found = vectors.judge(&Declared { arithmetic: &arithmetic, features, conventions }, call)?;
        let count = |outcome| found.iter().filter(|judgement| judgement.outcome == outcome).count();
        let [pass, fail, skip] = [Outcome::Pass, Outcome::Fail, Outcome::Skip].map(count);
        println!("{operation} {name}: {pass} pass, {fail} fail, {skip} skip");
        found.iter().filter(|judgement| judgement.outcome != Outcome::Pass).for_each(|judgement| println!("  {judgement}"));
        Ok::<(), String>(())
    };
    judge("hard_masked_softmax", "right", &["mask"], &[], &|x| softmax(x, false, rounded))?;
    judge("hard_masked_softmax", "wrong", &["mask"], &[], &|x| softmax(x, true, rounded))?;
    judge("scaled_dot_product_attention", "right", &["mask"], &[], &|x| attention(x, |width| width.max(1.0).sqrt(), rounded))?;
    judge("scaled_dot_product_attention", "wrong", &["mask"], &[], &|x| attention(x, |width| width.max(1.0), rounded))?;
    let (adjacent, halves) = (|i, _| [2 * i, 2 * i + 1], |i, width| [i, i + width / 2]);
    judge("rope", "right", &[], &[], &|x| rotated(x, adjacent, rounded))?;
    judge("rope", "wrong", &[], &[], &|x| rotated(x, halves, rounded))?;
    judge("rope", "half", &[], &[("rope_pairing", "half")], &|x| rotated(x, halves, rounded))
}
