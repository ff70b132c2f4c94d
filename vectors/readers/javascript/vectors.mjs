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
const list = (x) => (Array.isArray(x) ? x : []);
const object = (x) => (isObject(x) ? x : {});
const isName = (x) => typeof x === "string" && x.includes("/");

function require(right, text) {
  if (!right) throw new RangeError(text);
}

/** The file of some tests and its tensors, from the bytes of both, all checked. */
export function read(json, safetensors) {
  const told = JSON.parse(json.toString("utf8")), known = tensors(safetensors);
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
      for (const reading of [test, ...list(test.readings)]) {
        require(reading === test || isObject(reading?.conventions), `${test.id} has a reading without conventions.`);
        for (const output of Object.values(object(reading.outputs))) {
          const sizes = ["lower", "upper", "budget"].map((part) => known.get(output?.[part])?.data.length);
          require(sizes[0] >= 0 && sizes.every((n) => n === sizes[0]), `${test.id} lacks bounds or a budget of one size.`);
        }
      }
    }
  }
  return { told, known };
}

/** An exception of this class says that the function does not support a call: the test is skipped. */
export class Unsupported extends Error {}

/**
 * Yields {id, outcome, sentence, hints} for each test of an arithmetic. The outcome is "pass", "fail" or "skip", and the sentence says why a
 * test fails or is skipped. `hints` are the known bugs that fail this test, and no test before it in this format: look at the hints of the
 * first test that fails.
 *
 * `call` takes the inputs by name, and returns the numbers of its result, in a list or a typed array, or a list of those of its results. An
 * exception refuses the call. `features` are the optional arguments that it takes, and `conventions` the conventions in which it differs from
 * the file, such as {rope_pairing: "half"}. A file that is wrong anywhere throws an error.
 */
export function* judged(file, call, arithmetic, declared = {}) {
  const json = readFileSync(file), name = JSON.parse(json.toString("utf8"))?.tensors;
  if (typeof name !== "string" || !/^[^./\\:][^/\\:]*$/.test(name)) {
    throw new RangeError(`\`tensors\` should be the name of a file in the folder of ${file}.`);
  }
  yield* judgedTests(read(json, readFileSync(join(dirname(file), name))), call, arithmetic, declared);
}

/** Yields the same for the file that `read` returns. */
export function* judgedTests({ told, known }, call, arithmetic, { features = [], conventions = {} } = {}) {
  const optional = new Set(told.groups.flatMap((group) => list(group.features)));
  requireKnown([...optional], features, "feature", told);
  requireKnown(Object.keys(told.conventions ?? {}), Object.keys(conventions), "convention", told);
  const differing = new Map(Object.entries(conventions).filter(([name, x]) => told.conventions?.[name] !== x));
  const groups = told.groups.filter((group) => group.format === arithmetic && group.tests.length);
  if (!groups.length) throw new RangeError(`The file has no tests in the format ${arithmetic}.`);
  for (const group of groups) {
    for (const test of group.tests) {
      const needed = [...list(group.features), ...Object.keys(test.inputs).filter((name) => optional.has(name))];
      const missing = [...new Set(needed)].filter((name) => !features.includes(name)).sort();
      const [wanted, reason] = chosen(group, test, differing);
      if (missing.length) yield skipped(test, `It needs features that the function does not take: ${missing.join(", ")}.`);
      else if (reason) yield skipped(test, reason);
      else yield called(call, test, wanted, known);
    }
  }
}

const skipped = (test, sentence) => ({ id: test.id, outcome: "skip", sentence, hints: [] });
const shown = (conventions) => conventions.map(([name, x]) => `${name}=${x}`).join(", ");

function requireKnown(known, names, kind, file) {
  for (const name of names) {
    if (known.includes(name) || Object.hasOwn(object(file.inputs), name)) continue;
    throw new RangeError(`The file has no ${kind} '${name}', but has: ${known.sort().join(", ")}.`);
  }
}

/** The results that hold under the declared conventions, and the reason why the test has none. */
function chosen(group, test, differing) {
  const other = Object.entries(group.conventions).filter(([name, x]) => differing.get(name) !== x);
  if (other.length) return [null, `It is for code with ${shown(other)}.`];
  const wanted = [...differing].filter(([name]) => list(test.rests_on).includes(name) && !Object.hasOwn(group.conventions, name));
  if (!wanted.length) return [object(test.outputs), ""];
  const isWanted = ({ conventions }) => Object.keys(conventions).length === wanted.length && wanted.every(([name, x]) => conventions[name] === x);
  const reading = list(test.readings).find(isWanted);
  return reading ? [object(reading.outputs), ""] : [null, `It has no result for ${shown(wanted)}.`];
}

function called(call, test, wanted, known) {
  const named = Object.entries(test.inputs).map(([name, x]) => [name, isName(x) ? known.get(x) : x]);
  const isValid = Object.keys(wanted).length > 0;
  let sentence = "";
  try {
    const out = call(Object.fromEntries(named));
    const outs = Array.isArray(out) && typeof out[0] === "object" ? out : [out];
    sentence = mistake(outs, wanted, known);
    if (sentence) sentence += otherwise(outs, test, known);
  } catch (error) {
    if (isValid && error instanceof Unsupported) return skipped(test, `The function does not support this call: ${error.message}`);
    if (isValid) sentence = `The function refuses this call: ${error}`;
  }
  return { id: test.id, outcome: sentence ? "fail" : "pass", sentence, hints: sentence ? list(test.kills) : [] };
}

/** A sentence about the conventions under which wrong results are right, or "". */
function otherwise(outs, test, known) {
  const right = list(test.readings).filter(({ outputs }) => outputs && !mistake(outs, outputs, known));
  const names = right.map(({ conventions }) => shown(Object.entries(conventions))).join(" or ");
  return names ? ` The results are right for code with ${names}.` : "";
}

/** A sentence that says what is wrong with the results of a call, or "". */
function mistake(outs, wanted, known) {
  const entries = Object.entries(wanted);
  if (!entries.length) return "The function returns a result, but should refuse this call.";
  if (outs.length !== entries.length) return `The function returns ${outs.length} results, but should return ${entries.length}.`;
  return entries.map(([name, output], i) => outside(outs[i], name, output, known)).find(Boolean) ?? "";
}

/** A sentence about the entry that is farthest outside its error limit, or "". */
function outside(out, name, output, known) {
  const [lower, upper, budget] = ["lower", "upper", "budget"].map((part) => known.get(output[part]).data);
  if (out.length !== lower.length) return `${name} has ${out.length} numbers, but should have ${lower.length}.`;
  let number = 0, worst = -1, most = -1;
  for (let i = 0; i < out.length; i++) {
    const x = Number(out[i]), distance = Math.max(lower[i] - x, x - upper[i]);
    if (lower[i] - budget[i] <= x && x <= upper[i] + budget[i]) continue;
    if ((Number.isNaN(x) && Number.isNaN(lower[i])) || budget[i] === Infinity) continue;
    const limits = Number.isNaN(distance) || budget[i] === 0 ? Infinity : distance / budget[i];
    if (limits > most) [worst, most] = [i, limits];
    number += 1;
  }
  if (!number) return "";
  const digits = (x) => Number(Number(x).toPrecision(9));
  const [low, high] = [lower[worst] - budget[worst], upper[worst] + budget[worst]].map(digits);
  return `${name}[${position(worst, known.get(output.lower).shape)}]=${digits(out[worst])}, but should be from ${low} to ${high}: the error ` +
    `is ${Number(most.toPrecision(3))} times its error limit; ${number} of ${out.length} entries are outside.`;
}

/** The index of an entry, given its place row by row. */
function position(place, shape) {
  const index = [];
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index.unshift(place % shape[axis]);
    place = Math.floor(place / shape[axis]);
  }
  return index.join(", ");
}
