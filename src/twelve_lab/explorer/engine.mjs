// Run a program forward and backward over one flat array of numbers.
// A tree is the index of an element, ["#", constant] or [operation, part, ...]; see program.py.

const erf = (x) => {
  const a = Math.abs(x);
  if (a < 2.5) {
    let term = x;
    let sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (2 * x * x) / (2 * n + 1);
      sum += term;
    }
    return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
  }
  return Math.sign(x) * (1 - tail(a));
};

// 1 - erf(x) for large x, without cancellation.
const tail = (x) => {
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (x + fraction);
  return Math.exp(-x * x) / (x + fraction) / Math.sqrt(Math.PI);
};

const bell = (x) => (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x);
const one = (value, slope) => ({
  value: ([x]) => value(x),
  slopes: ([x], y) => [slope(x, y)],
});
const two = (value, slopes) => ({
  value: ([a, b]) => value(a, b),
  slopes: ([a, b], y) => slopes(a, b, y),
});
const compare = (holds) =>
  two(
    (a, b) => Number(holds(a, b)),
    () => [0, 0],
  );
const first = (better) => (xs) => xs.reduce((best, x, i) => (better(x, xs[best]) ? i : best), 0);
// Ties: the first of several equal numbers gets the gradient, as in relu and in max over an axis.
const extreme = (better) => ({
  value: (xs) => (xs.some(Number.isNaN) ? NaN : xs[first(better)(xs)]),
  slopes: (xs) => {
    const chosen = first(better)(xs);
    return xs.map((_, i) => Number(i === chosen));
  },
});

const spread = (scores) => {
  const largest = Math.max(...scores);
  const powers = scores.map((x) => Math.exp(x - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return { shares: powers.map((p) => p / sum), log: largest + Math.log(sum) };
};
const softmax = {
  value: ([here, ...scores]) => spread(scores).shares[here],
  slopes: ([here, ...scores], y) => {
    const { shares } = spread(scores);
    return [0, ...shares.map((s, i) => y * (Number(i === here) - s))];
  },
};
const nothing = (scores) => scores.every((x) => x === -Infinity);
const none = (xs) => xs.map(() => 0);

export const OPERATIONS = {
  sum: { value: (xs) => xs.reduce((a, b) => a + b, 0), slopes: (xs) => xs.map(() => 1) },
  dot: {
    value: (xs) => {
      const half = xs.length / 2;
      let sum = 0;
      for (let i = 0; i < half; i++) sum += xs[i] * xs[half + i];
      return sum;
    },
    slopes: (xs) => [...xs.slice(xs.length / 2), ...xs.slice(0, xs.length / 2)],
  },
  "+": two(
    (a, b) => a + b,
    () => [1, 1],
  ),
  "-": two(
    (a, b) => a - b,
    () => [1, -1],
  ),
  "*": two(
    (a, b) => a * b,
    (a, b) => [b, a],
  ),
  "/": two(
    (a, b) => a / b,
    (_a, b, y) => [1 / b, -y / b],
  ),
  "**": two(
    (a, b) => a ** b,
    (a, b, y) => [b === 0 ? 0 : b * a ** (b - 1), a > 0 ? y * Math.log(a) : 0],
  ),
  neg: one(
    (x) => -x,
    () => -1,
  ),
  "==": compare((a, b) => a === b),
  "!=": compare((a, b) => a !== b),
  "<": compare((a, b) => a < b),
  "<=": compare((a, b) => a <= b),
  ">": compare((a, b) => a > b),
  ">=": compare((a, b) => a >= b),
  max: extreme((a, b) => a > b),
  min: extreme((a, b) => a < b),
  IF: {
    value: ([holds, a, b]) => (holds ? a : b),
    slopes: ([holds]) => [0, Number(Boolean(holds)), Number(!holds)],
  },
  AND: { value: (xs) => Number(xs.every(Boolean)), slopes: none },
  OR: { value: (xs) => Number(xs.some(Boolean)), slopes: none },
  NOT: one(
    (x) => Number(!x),
    () => 0,
  ),
  pick: {
    value: ([row, ...table]) => table[row] ?? NaN,
    slopes: ([row, ...table]) => [0, ...table.map((_, i) => Number(i === row))],
  },
  softmax,
  // If all scores are masked, fused attention in torch returns zeros.
  safe_softmax: {
    value: ([here, ...scores]) => (nothing(scores) ? 0 : softmax.value([here, ...scores])),
    slopes: ([here, ...scores], y) =>
      nothing(scores) ? none([here, ...scores]) : softmax.slopes([here, ...scores], y),
  },
  log_softmax: {
    value: ([here, ...scores]) => scores[here] - spread(scores).log,
    slopes: ([here, ...scores]) => [
      0,
      ...spread(scores).shares.map((s, i) => Number(i === here) - s),
    ],
  },
  logsumexp: { value: (xs) => spread(xs).log, slopes: (xs) => spread(xs).shares },
  sigmoid: one(
    (x) => 1 / (1 + Math.exp(-x)),
    (_x, y) => y * (1 - y),
  ),
  abs: one(Math.abs, Math.sign),
  ceil: one(Math.ceil, () => 0),
  floor: one(Math.floor, () => 0),
  trunc: one(Math.trunc, () => 0),
  sin: one(Math.sin, Math.cos),
  cos: one(Math.cos, (x) => -Math.sin(x)),
  tan: one(Math.tan, (_x, y) => 1 + y * y),
  asin: one(Math.asin, (x) => 1 / Math.sqrt(1 - x * x)),
  acos: one(Math.acos, (x) => -1 / Math.sqrt(1 - x * x)),
  atan: one(Math.atan, (x) => 1 / (1 + x * x)),
  sinh: one(Math.sinh, Math.cosh),
  cosh: one(Math.cosh, Math.sinh),
  tanh: one(Math.tanh, (_x, y) => 1 - y * y),
  exp: one(Math.exp, (_x, y) => y),
  exp2: one(
    (x) => 2 ** x,
    (_x, y) => y * Math.LN2,
  ),
  expm1: one(Math.expm1, (_x, y) => y + 1),
  log: one(Math.log, (x) => 1 / x),
  log2: one(Math.log2, (x) => 1 / (x * Math.LN2)),
  log10: one(Math.log10, (x) => 1 / (x * Math.LN10)),
  log1p: one(Math.log1p, (x) => 1 / (1 + x)),
  sqrt: one(Math.sqrt, (_x, y) => 0.5 / y),
  erf: one(erf, bell),
  erfc: one(
    (x) => (x < 2.5 ? 1 - erf(x) : tail(x)),
    (x) => -bell(x),
  ),
};

export const isPlace = (tree) => typeof tree === "number";
// JSON has no infinity: parse Python's notation.
export const number = (written) =>
  typeof written === "number" ? written : Number(written.replace("inf", "Infinity"));

// The distinct element indices in a tree, from left to right.
export const leaves = (tree, found = new Set()) => {
  if (isPlace(tree)) found.add(tree);
  else if (tree[0] !== "#") for (const part of tree.slice(1)) leaves(part, found);
  return found;
};

export class Engine {
  // program: { tensors: [{ name, shape, numbers | trees, weight, ... }] }
  constructor(program) {
    this.tensors = program.tensors;
    this.byName = new Map();
    this.trees = [];
    const start = [];
    for (const tensor of this.tensors) {
      tensor.start = this.trees.length;
      tensor.size = tensor.shape.reduce((a, b) => a * b, 1);
      this.byName.set(tensor.name, tensor);
      for (let i = 0; i < tensor.size; i++) {
        this.trees.push(tensor.trees ? tensor.trees[i] : null);
        start.push(tensor.numbers ? number(tensor.numbers[i]) : 0);
      }
    }
    this.count = this.trees.length;
    this.home = new Int32Array(this.count);
    this.tensors.forEach((tensor, n) => {
      this.home.fill(n, tensor.start, tensor.start + tensor.size);
    });
    // Computed numbers that the reader fixed: index -> value, which overrides the arithmetic.
    this.held = new Map();
    this.#compile(start);
    const weights = this.tensors.filter((tensor) => tensor.weight);
    this.weights = weights.flatMap((t) => Array.from({ length: t.size }, (_, i) => t.start + i));
    const last = this.tensors.at(-1);
    this.target = last.size === 1 && last.type === "float" && last.trees ? last.start : -1;
    this.run();
    this.original = this.values.slice();
  }

  // Compile every tree to instructions over one array of elements, intermediates and constants.
  #compile(start) {
    const values = [...start];
    const steps = [];
    const constants = new Map();
    const state = new Uint8Array(this.count);
    const emit = (tree, out) => {
      if (isPlace(tree)) {
        settle(tree);
        return tree;
      }
      if (tree[0] === "#") {
        const value = number(tree[1]);
        if (!constants.has(value)) constants.set(value, values.push(value) - 1);
        return constants.get(value);
      }
      const parts = tree.slice(1).map((part) => emit(part, -1));
      const place = out < 0 ? values.push(0) - 1 : out;
      steps.push({ operation: OPERATIONS[tree[0]], parts, place, buffer: new Array(parts.length) });
      return place;
    };
    const settle = (place) => {
      if (state[place] || this.trees[place] === null) return;
      state[place] = 1;
      const tree = this.trees[place];
      if (isPlace(tree) || tree[0] === "#") emit(["sum", tree], place);
      else emit(tree, place);
    };
    for (let place = 0; place < this.count; place++) settle(place);
    this.values = Float64Array.from(values);
    this.gradients = new Float64Array(values.length);
    this.steps = steps;
  }

  run() {
    const { values, held } = this;
    for (const { operation, parts, place, buffer } of this.steps) {
      if (held.has(place)) {
        values[place] = held.get(place);
        continue;
      }
      for (let i = 0; i < parts.length; i++) buffer[i] = values[parts[i]];
      values[place] = operation.value(buffer);
    }
  }

  // Gradients of one number (by default the loss) with respect to every other number.
  back(target = this.target) {
    const { values, gradients, held } = this;
    gradients.fill(0);
    if (target < 0) return;
    gradients[target] = 1;
    for (let n = this.steps.length - 1; n >= 0; n--) {
      const { operation, parts, place, buffer } = this.steps[n];
      const arrived = gradients[place];
      if (arrived === 0 || held.has(place)) continue;
      for (let i = 0; i < parts.length; i++) buffer[i] = values[parts[i]];
      const slopes = operation.slopes(buffer, values[place]);
      // A zero slope blocks even an infinite gradient, like masks in torch.
      for (let i = 0; i < parts.length; i++)
        if (slopes[i] !== 0) gradients[parts[i]] += arrived * slopes[i];
    }
  }

  // Change a number; a computed number is fixed at the new value.
  put(place, value) {
    if (this.trees[place] === null) this.values[place] = value;
    else this.held.set(place, value);
  }

  // Return whether an element accepts a value: 0 or 1 in a mask, an id within the tables.
  takes(place, value) {
    const { type } = this.tensorOf(place);
    if (Number.isNaN(value)) return false;
    if (type === "bool") return value === 0 || value === 1;
    if (type !== "int") return true;
    const now = this.changes().get(place);
    this.put(place, value);
    this.run();
    const found = this.steps.every(
      ({ operation, parts }) =>
        operation !== OPERATIONS.pick || this.values[parts[0]] in parts.slice(1),
    );
    if (now === undefined) this.restore(place);
    else this.put(place, now);
    this.run();
    return found;
  }

  // Reset a number to its initial value, or to the result of its arithmetic.
  restore(place) {
    if (this.trees[place] === null) this.values[place] = this.original[place];
    else this.held.delete(place);
  }

  // The changes of the reader: index of an element -> its value.
  changes() {
    const changed = new Map(this.held);
    for (let place = 0; place < this.count; place++) {
      if (this.trees[place] === null && !Object.is(this.values[place], this.original[place])) {
        changed.set(place, this.values[place]);
      }
    }
    return changed;
  }

  // Take one step of gradient descent on every weight; return the loss before the step.
  learn(rate) {
    this.back();
    const before = this.values[this.target];
    for (const place of this.weights) this.values[place] -= rate * this.gradients[place];
    this.run();
    return before;
  }

  // The gradients of one number with respect to every other number; `gradients` is unchanged.
  slopesOf(place) {
    const view = Object.assign(Object.create(this), {
      gradients: new Float64Array(this.values.length),
    });
    view.back(place);
    return view.gradients;
  }

  // The changes of all numbers if one number increases by an amount.
  effectsOf(place, amount) {
    const twin = Object.assign(Object.create(this), {
      values: this.values.slice(),
      held: new Map(this.held),
    });
    twin.put(place, this.values[place] + amount);
    twin.run();
    return twin.values.map((value, other) => value - this.values[other]);
  }

  // The partial derivatives of the number at `later` with respect to the numbers in its tree.
  slopes(later) {
    const slopes = new Map();
    if (this.trees[later] === null || this.held.has(later)) return slopes;
    const walk = (tree, arrived) => {
      if (isPlace(tree)) {
        slopes.set(tree, (slopes.get(tree) ?? 0) + arrived);
        return;
      }
      if (tree[0] === "#") return;
      const parts = tree.slice(1);
      const values = parts.map((part) => this.value(part));
      const operation = OPERATIONS[tree[0]];
      const given = operation.slopes(values, operation.value(values));
      parts.forEach((part, i) => {
        walk(part, given[i] === 0 ? 0 : arrived * given[i]);
      });
    };
    walk(this.trees[later], 1);
    return slopes;
  }

  value(tree) {
    if (isPlace(tree)) return this.values[tree];
    if (tree[0] === "#") return number(tree[1]);
    return OPERATIONS[tree[0]].value(tree.slice(1).map((part) => this.value(part)));
  }

  // The numbers whose arithmetic contains this number.
  uses(place) {
    if (!this.used) {
      this.used = Array.from({ length: this.count }, () => []);
      this.trees.forEach((tree, later) => {
        if (tree !== null) for (const leaf of leaves(tree)) this.used[leaf].push(later);
      });
    }
    return this.used[place];
  }

  tensorOf(place) {
    return this.tensors[this.home[place]];
  }

  place(name, index) {
    const tensor = this.byName.get(name);
    if (!tensor) throw new RangeError(`no tensor is named ${JSON.stringify(name)}`);
    const at = [...(index ?? [])];
    const fits =
      at.length === tensor.shape.length &&
      at.every((i, n) => Number.isInteger(i) && i >= 0 && i < tensor.shape[n]);
    if (!fits)
      throw new RangeError(`${name} has the sizes [${tensor.shape}]; there is no element [${at}]`);
    return tensor.start + at.reduce((sum, i, n) => sum * tensor.shape[n] + i, 0);
  }

  index(place) {
    const tensor = this.tensorOf(place);
    let rest = place - tensor.start;
    const index = [];
    for (const size of [...tensor.shape].reverse()) {
      index.unshift(rest % size);
      rest = Math.floor(rest / size);
    }
    return index;
  }
}
