// Right and wrong functions, judged: `node example.mjs FOLDER ARITHMETIC` prints how many tests each passes, fails and skips, and why.
import { join } from "node:path";
import { judged, Unsupported } from "./vectors.mjs";

const [folder, format] = process.argv.slice(2);
const Numbers = format === "float32" ? Float32Array : Float64Array;

const last = (shape, n) => shape[shape.length - n];
const count = (shape) => shape.reduce((a, b) => a * b, 1);

/** What the mask says of each entry of a shape, with which it broadcasts. */
function allowed(mask, shape) {
  if (!mask) return () => true;
  const lead = shape.length - mask.shape.length;
  if (mask.shape.some((n, axis) => n !== 1 && n !== shape[axis + lead])) throw new RangeError("The mask does not fit.");
  return (place) => {
    let at = 0, step = 1;
    for (let axis = shape.length - 1; axis >= lead; axis--) {
      const n = mask.shape[axis - lead];
      if (n !== 1) at += step * (place % shape[axis]);
      step *= n;
      place = Math.floor(place / shape[axis]);
    }
    return mask.data[at] !== 0;
  };
}

function softmax({ scores, mask }, masksLate = false) {
  const { shape, data } = scores, n = last(shape, 1), may = allowed(mask, shape), out = new Numbers(data.length);
  for (let row = 0; row < data.length; row += n) {
    const takes = (j) => masksLate || may(row + j);
    let largest = -Infinity, total = 0;
    for (let j = 0; j < n; j++) if (takes(j)) largest = Math.max(largest, data[row + j]);
    for (let j = 0; j < n; j++) if (takes(j)) total += Math.exp(data[row + j] - largest);
    for (let j = 0; j < n; j++) out[row + j] = may(row + j) ? Math.exp(data[row + j] - largest) / total : 0;
  }
  return out;
}

function attention({ q, k, v, mask }, scale = (width) => Math.sqrt(Math.max(width, 1))) {
  const d = last(q.shape, 1), n = last(q.shape, 2), m = last(k.shape, 2), e = last(v.shape, 1);
  if (d !== last(k.shape, 1) || m !== last(v.shape, 2)) throw new RangeError("Shapes do not fit.");
  const lead = q.shape.slice(0, -2), shape = [...lead, n, m], scores = new Float64Array(count(shape)), out = new Numbers(count(lead) * n * e);
  for (let row = 0; row < count(lead) * n; row++) {
    const keys = Math.floor(row / n) * m;
    for (let j = 0; j < m; j++) {
      let sum = 0;
      for (let c = 0; c < d; c++) sum += q.data[row * d + c] * k.data[(keys + j) * d + c];
      scores[row * m + j] = sum / scale(d);
    }
  }
  const weights = softmax({ scores: { shape, data: scores }, mask });
  for (let row = 0; row < count(lead) * n; row++) {
    const keys = Math.floor(row / n) * m;
    for (let c = 0; c < e; c++) {
      let sum = 0;
      for (let j = 0; j < m; j++) if (weights[row * m + j]) sum += weights[row * m + j] * v.data[(keys + j) * e + c];
      out[row * e + c] = sum;
    }
  }
  return out;
}

/** Rotates pairs of channels: the pair i is at the places of `pair(i, width)` in its row. */
function rotated({ x, start_pos: start = 0 }, pair) {
  const d = last(x.shape, 1), n = last(x.shape, 2), out = new Numbers(x.data.length);
  if (start < 0) throw new RangeError("start_pos is negative.");
  if (d % 2) throw new Unsupported("head_dim is odd.");
  for (let row = 0; row < x.data.length / Math.max(d, 1); row++) {
    for (let i = 0; i < d / 2; i++) {
      const angle = (start + (row % n)) * 10000 ** (-i / (d / 2)), [a, b] = pair(i, d).map((channel) => row * d + channel);
      out[a] = x.data[a] * Math.cos(angle) - x.data[b] * Math.sin(angle);
      out[b] = x.data[b] * Math.cos(angle) + x.data[a] * Math.sin(angle);
    }
  }
  return out;
}
const rope = (given) => rotated(given, (i) => [2 * i, 2 * i + 1]);
const ropeOfHalves = (given) => rotated(given, (i, width) => [i, i + width / 2]);

const MASK = { features: ["mask"] };
const JUDGED = [
  ["hard_masked_softmax", "right", softmax, MASK],
  ["hard_masked_softmax", "wrong", (x) => softmax(x, true), MASK],
  ["scaled_dot_product_attention", "right", attention, MASK],
  ["scaled_dot_product_attention", "wrong", (x) => attention(x, (width) => Math.max(width, 1)), MASK],
  ["rope", "right", rope, {}],
  ["rope", "wrong", ropeOfHalves, {}],
  ["rope", "half", ropeOfHalves, { conventions: { rope_pairing: "half" } }],
];
for (const [operation, name, call, declared] of JUDGED) {
  const found = [...judged(join(folder, `${operation}.json`), (x) => call(x), format, declared)];
  const count = (outcome) => found.filter((judgement) => judgement.outcome === outcome).length;
  console.log(`${operation} ${name}: ${count("pass")} pass, ${count("fail")} fail, ${count("skip")} skip`);
  for (const { id, outcome, sentence, hints } of found.filter((judgement) => judgement.outcome !== "pass")) {
    const bugs = hints.length ? ` Known bugs that this test detects: ${hints.join(", ")}.` : "";
    console.log(`  ${id} ${outcome} ${sentence}${bugs}`);
  }
}
