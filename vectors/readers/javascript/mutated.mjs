// Mutated files are read or refused with a sentence: `node mutated.mjs NUMBER` prints how many were refused, and how many read.
import { readFileSync } from "node:fs";
import { judgedTests, read } from "./vectors.mjs";

let state = 1;
const below = (limit) => {
  for (const shift of [13, -17, 5]) state ^= shift > 0 ? state << shift : state >>> -shift; // xorshift32
  return limit ? (state >>> 0) % limit : 0;
};
const TELLING = Buffer.from("{}[]\",:\\/0129-e. tfn\0\xff", "latin1");

/** Bytes with up to four of them changed, removed, or repeated from elsewhere. */
function mutated(bytes) {
  let work = Buffer.from(bytes);
  for (let change = below(4) + 1; change && work.length; change--) {
    const at = below(work.length), from = below(work.length), span = below(48);
    const kind = below(5);
    if (kind === 0) work[at] = TELLING[below(TELLING.length)];
    if (kind === 1) work[at] ^= 1 << below(8);
    if (kind === 2) work = Buffer.concat([work.subarray(0, at), work.subarray(at + span)]);
    if (kind === 3) work.copy(work, at, from, from + span);
    if (kind === 4 && !below(8)) work = work.subarray(0, at);
  }
  return work;
}

const sum = ({ scale = 0, ...arrays }) =>
  Object.values(arrays).reduce((total, x) => total + (x?.data ? x.data.reduce((a, b) => a + b, 0) : 0), Number(scale));
const files = ["rotate_half", "combine_masks", "alibi_slopes", "padding_mask"].map((name) =>
  ["json", "safetensors"].map((kind) => readFileSync(new URL(`../../data/${name}.${kind}`, import.meta.url))));
let refused = 0;
const number = Number(process.argv[2]);
for (let i = 0; i < number; i++) {
  const [json, tensors] = files[i % files.length], which = below(3);
  try {
    const file = read(which === 1 ? json : mutated(json), which === 0 ? tensors : mutated(tensors));
    for (const _ of judgedTests(file, (inputs) => [sum(inputs)], "float64"));
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error;
    refused++;
  }
}
console.log(`${refused} refused, ${number - refused} read`);
