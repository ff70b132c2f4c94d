// Read the vectors, and judge a function by them. Nothing but Node's own modules.
//
// A file is checked as a whole before the first test: every tensor, and every name of a tensor. A RangeError says what is wrong.
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

/** The tensors of the bytes of a safetensors file by name: {shape, data}, data a Float64Array, row by row. */
export function tensors(raw) {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const begin = raw.length < 8 ? Infinity : 8 + Number(view.getBigUint64(0, true));
  if (begin > raw.length) throw new RangeError("The header of the tensors is cut off.");
  const header = JSON.parse(raw.toString("utf8", 8, begin));
  const entries = Object.entries(header ?? {}).filter(([name]) => name !== "__metadata__");
  return new Map(entries.map(([name, entry]) => [name, tensor(view, begin, name, entry ?? {})]));
}

function tensor(view, begin, name, { dtype, shape, data_offsets: offsets }) {
  const isSize = (n) => Number.isSafeInteger(n) && n >= 0;
  const [width, get] = (Object.hasOwn(READ, dtype) && READ[dtype]) || [];
  const isWhole = width && [shape, offsets].every((list) => Array.isArray(list) && list.every(isSize)) && offsets.length === 2;
  if (!isWhole || offsets[1] > view.byteLength - begin || count(shape) * width !== offsets[1] - offsets[0]) {
    throw new RangeError(`The type, the shape or the place of the tensor ${name} is wrong.`);
  }
  return { shape, data: Float64Array.from({ length: count(shape) }, (_, i) => get(view, begin + offsets[0] + i * width)) };
}

const count = (shape) => shape.reduce((a, b) => a * b, 1);
const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
const isName = (x) => typeof x === "string" && x.includes("/");

/** The file of some tests and its tensors, from the bytes of both, all checked. */
export function read(json, safetensors) {
  const told = JSON.parse(json.toString("utf8")), known = tensors(safetensors);
  const require = (right, text) => {
    if (!right) throw new RangeError(text);
  };
  require(Array.isArray(told?.groups) && told.groups.length, "The file has no groups of tests.");
  for (const group of told.groups) {
    const isGroup = Array.isArray(group?.tests) && typeof group.format === "string" && isObject(group.conventions);
    require(isGroup, "A group has no tests, no format or no conventions.");
    for (const test of group.tests) {
      require(typeof test?.id === "string" && isObject(test.inputs), "A test has no id or no inputs.");
      for (const x of Object.values(test.inputs)) {
        require(!isObject(x), `${test.id} has a formula, which this reader does not read.`);
        require(!isName(x) || known.has(x), `${test.id} names a tensor that is not in the file.`);
      }
      for (const output of Object.values(test.outputs ?? {})) {
        const sizes = ["lower", "upper", "budget"].map((part) => known.get(output?.[part])?.data.length);
        require(sizes[0] >= 0 && sizes.every((n) => n === sizes[0]), `${test.id} lacks bounds or a budget of one size.`);
      }
    }
  }
  return { told, known };
}

/**
 * For each test of a format its id and whether a function passes. It takes the inputs by name, and returns the numbers of its result, in a
 * list or a typed array, or a list of those of its results; an exception refuses. Only groups that follow the file's own conventions are taken.
 * A file that has no such test, or is wrong anywhere, throws an error.
 */
export function* judged(file, call, format) {
  const json = readFileSync(file), name = JSON.parse(json.toString("utf8"))?.tensors;
  if (typeof name !== "string" || !/^[^./\\:][^/\\:]*$/.test(name)) {
    throw new RangeError(`\`tensors\` should be the name of a file in the folder of ${file}.`);
  }
  yield* judgedTests(read(json, readFileSync(join(dirname(file), name))), call, format);
}

/** The same of what `read` returns. */
export function* judgedTests({ told, known }, call, format) {
  const groups = told.groups.filter((g) => g.format === format && Object.keys(g.conventions).length === 0);
  const tests = groups.flatMap((group) => group.tests);
  if (!tests.length) throw new RangeError(`The file has no tests in the format ${format}.`);
  for (const test of tests) {
    const named = Object.entries(test.inputs).map(([name, x]) => [name, isName(x) ? known.get(x) : x]);
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

function within(out, wanted, known) {
  const [lower, upper, budget] = ["lower", "upper", "budget"].map((part) => known.get(wanted[part]).data);
  const right = (x, i) => (lower[i] - budget[i] <= x && x <= upper[i] + budget[i]) ||
    (Number.isNaN(x) && Number.isNaN(lower[i])) || budget[i] === Infinity;
  return out.length === lower.length && Array.prototype.every.call(out, right);
}
