// A right and a wrong softmax and attention, judged: `node example.mjs FOLDER FORMAT` prints how many tests each fails.
import { join } from "node:path";
import { judged } from "./vectors.mjs";

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

const JUDGED = {
  hard_masked_softmax: { right: softmax, wrong: (x) => softmax(x, true) },
  scaled_dot_product_attention: { right: attention, wrong: (x) => attention(x, (width) => Math.max(width, 1)) },
};
for (const [operation, functions] of Object.entries(JUDGED)) {
  for (const [name, call] of Object.entries(functions)) {
    const found = [...judged(join(folder, `${operation}.json`), (x) => call(x), format)];
    console.log(`${operation} ${name} fails ${found.filter(([, passed]) => !passed).length} of ${found.length}`);
  }
}
