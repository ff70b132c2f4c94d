//! Mutated files are read or refused: nothing panics. `NUMBER=1000000 cargo test --release --test mutated` tries more.

use attnspec_vectors::{json::Json, Declared, Inputs, Refusal, Vectors};
use std::{env, fs};

struct Random(u64);

impl Random {
    /// A number below a limit, by xorshift64.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if limit == 0 { 0 } else { (self.0 % limit as u64) as usize }
    }

    /// Bytes with up to four of them changed, removed, or repeated from elsewhere.
    fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut work = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let (at, from) = (self.below(work.len()), self.below(work.len()));
            let span = self.below(48).min(work.len() - at).min(work.len() - from);
            match self.below(5) {
                _ if work.is_empty() => {}
                0 => work[at] = b"{}[]\",:\\/0129-e. tfn\0\xff"[self.below(22)],
                1 => work[at] ^= 1 << self.below(8),
                2 => drop(work.drain(at..at + span)),
                3 => work.copy_within(from..from + span, at),
                _ if self.below(8) == 0 => work.truncate(at),
                _ => {}
            }
        }
        work
    }
}

/// The sum of all inputs as the only number of the only result.
fn sum_of_inputs(inputs: &Inputs) -> Result<Vec<Vec<f64>>, Refusal> {
    let array = |name: &str| inputs.array(name).map_or(0.0, |x| x.data.iter().sum());
    Ok(vec![vec![["x", "scores", "a"].map(array).iter().sum::<f64>() + inputs.value("scale").map_or(0.0, Json::number)]])
}

#[test]
fn mutated_files_are_read_or_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");
    let number: usize = env::var("NUMBER").map_or(2000, |x| x.parse().expect("NUMBER should be a number"));
    let mut random = Random(0x9e3779b97f4a7c15);
    for name in ["rotate_half", "combine_masks", "alibi_slopes", "padding_mask"] {
        let [json, tensors] = ["json", "safetensors"].map(|kind| fs::read(format!("{folder}/{name}.{kind}")).unwrap());
        let mut refused = 0;
        for _ in 0..number / 4 {
            let mutated = (random.mutated(&json), random.mutated(&tensors));
            let pairs = [(&mutated.0, &tensors), (&json, &mutated.1), (&mutated.0, &mutated.1)];
            let (json, tensors) = pairs[random.below(3)];
            let declared = Declared { arithmetic: "float64", ..Declared::default() };
            let judged = Vectors::read(json, tensors).map(|v| v.judge(&declared, sum_of_inputs).map(|found| found.len()));
            refused += usize::from(!matches!(judged, Ok(Ok(_))));
        }
        assert!(refused > 0 && refused < number / 4, "{refused} of {}", number / 4);
    }
}
