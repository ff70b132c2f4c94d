// Read the vectors, and judge a function by them. Nothing but Node's own modules.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const HALF = (bits) => {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
};
const WORD = new DataView(new ArrayBuffer(4));
const BRAIN = (bits) => (WORD.setUint32(0, bits * 65536), WORD.getFloat32(0));
const READ = {
  F64: [8, (view, at) => view.getFloat64(at, true)],
  F32: [4, (view, at) => view.getFloat32(at, true)],
  F16: [2, (view, at) => HALF(view.getUint16(at, true))],
  BF16: [2, (view, at) => BRAIN(view.getUint16(at, true))],
  I64: [8, (view, at) => Number(view.getBigInt64(at, true))],
  BOOL: [1, (view, at) => view.getUint8(at)],
};

/** The tensors of a file by name: {shape, data}, data a Float64Array, row by row. */
export function tensors(file) {
  const raw = readFileSync(file);
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const begin = 8 + Number(view.getBigUint64(0, true));
  const read = ({ dtype, shape, data_offsets: [from, to] }) => {
    const [size, get] = READ[dtype];
    return { shape, data: Float64Array.from({ length: (to - from) / size }, (_, i) => get(view, begin + from + i * size)) };
  };
  return Object.fromEntries(Object.entries(JSON.parse(raw.toString("utf8", 8, begin))).map(([name, entry]) => [name, read(entry)]));
}

/**
 * For each test of a format its id and whether a function passes. It takes the inputs by name, and returns the numbers of its result, in a
 * list or a typed array, or a list of those of its results; an exception refuses. Only groups that follow the file's own conventions are taken.
 */
export function* judged(file, call, format) {
  const told = JSON.parse(readFileSync(file, "utf8"));
  const known = tensors(join(dirname(file), told.tensors));
  for (const group of told.groups.filter((g) => g.format === format && Object.keys(g.conventions).length === 0)) {
    for (const test of group.tests) {
      const named = Object.entries(test.inputs).map(([name, x]) => [name, typeof x === "string" && x.includes("/") ? known[x] : x]);
      let out;
      try {
        out = call(Object.fromEntries(named));
      } catch {
        yield [test.id, test.result === "invalid"];
        continue;
      }
      const outs = Array.isArray(out) && typeof out[0] === "object" ? out : [out];
      const wanted = Object.values(test.outputs ?? {});
      yield [test.id, outs.length === wanted.length && wanted.length > 0 && wanted.every((one, i) => within(outs[i], one, known))];
    }
  }
}

function within(out, wanted, known) {
  const [lower, upper, budget] = ["lower", "upper", "budget"].map((part) => known[wanted[part]].data);
  const right = (x, i) => (lower[i] - budget[i] <= x && x <= upper[i] + budget[i]) ||
    (Number.isNaN(x) && Number.isNaN(lower[i])) || budget[i] === Infinity;
  return out.length === lower.length && Array.prototype.every.call(out, right);
}
