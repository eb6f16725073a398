// Actions of the reader: apply them to a run, undo them, replay them on another configuration.
import { Engine } from "./engine.mjs";

const KEPT = 200; // maximum number of actions that can be undone

export class State {
  constructor(runs) {
    this.runs = runs;
    this.engines = new Map();
    this.start(0);
  }

  engineOf(number) {
    if (!this.engines.has(number)) this.engines.set(number, new Engine(this.runs[number]));
    return this.engines.get(number);
  }

  get engine() {
    return this.engineOf(this.number);
  }

  // The number of gradient descent steps so far.
  get steps() {
    return Math.max(0, this.losses.length - 1);
  }

  // Open a configuration in its initial state, and forget all actions.
  start(number) {
    this.number = number;
    this.past = [];
    this.replay([]);
    this.#showOriginal();
  }

  #snapshot() {
    const { number, actions, losses, before, engine } = this;
    const { values, held } = engine;
    const copies = { actions: actions.map((each) => ({ ...each })), losses: [...losses] };
    return { number, before, values: values.slice(), held: new Map(held), ...copies };
  }

  #showOriginal() {
    const { number, engine } = this;
    this.before = { number, values: engine.original, held: new Map() };
  }

  // Recompute all values and gradients.
  follow() {
    this.engine.run();
    this.engine.back();
  }

  // Begin an action: "before" shows this state, and undo returns to it.
  begin() {
    this.past.push(this.#snapshot());
    if (this.past.length > KEPT) this.past.shift();
    const { number, values, held } = this.past.at(-1);
    this.before = { number, values, held };
  }

  // Change a number; null resets it to its initial value, or to the result of its arithmetic.
  put(place, value) {
    this.set(place, value);
    this.follow();
  }

  set(place, value) {
    const { engine } = this;
    const { name, start } = engine.tensorOf(place);
    if (value === null) engine.restore(place);
    else engine.put(place, value);
    // Among the changes since the last training step, only the last change of a number counts.
    const element = place - start;
    const since = this.actions.findLastIndex((each) => each.steps) + 1;
    const old = this.actions.findIndex(
      (each, n) => n >= since && each.name === name && each.element === element,
    );
    if (old >= 0) this.actions.splice(old, 1);
    if (value !== null || since) this.actions.push({ name, element, value });
  }

  learn(rate) {
    const { engine } = this;
    if (!this.losses.length) this.losses.push(engine.values[engine.target]);
    engine.learn(rate);
    engine.back();
    this.losses.push(engine.values[engine.target]);
    const last = this.actions.at(-1);
    if (last?.rate === rate) last.steps += 1;
    else this.actions.push({ rate, steps: 1 });
  }

  undo() {
    const last = this.past.pop();
    if (!last) return false;
    const { engine } = Object.assign(this, last);
    engine.values.set(last.values);
    engine.held = last.held;
    engine.back();
    return true;
  }

  // Apply actions to the configuration in its initial state.
  // Return the names of tensors that the configuration lacks, or that are too small there.
  replay(actions) {
    const { engine } = this;
    for (const place of engine.changes().keys()) engine.restore(place);
    this.actions = [];
    this.losses = [];
    this.follow();
    const missing = new Set();
    for (const { rate, steps, name, element, value } of actions) {
      const tensor = engine.byName.get(name);
      if (steps) for (let step = 0; step < steps && engine.target >= 0; step++) this.learn(rate);
      else if (tensor && element < tensor.size) this.put(tensor.start + element, value);
      else missing.add(name);
    }
    return [...missing];
  }

  reset() {
    this.begin();
    this.replay([]);
    this.#showOriginal();
  }

  // Select another configuration and replay the actions there; return the names of missing tensors.
  choose(number) {
    this.begin();
    const old = this.engine;
    this.number = number;
    const fits = ({ name }) =>
      !name || String(old.byName.get(name).shape) === String(this.engine.byName.get(name)?.shape);
    const missing = this.actions.filter((each) => !fits(each)).map(({ name }) => name);
    this.replay(this.actions.filter(fits));
    return [...new Set(missing)];
  }

  // Map the index of a number to another configuration; -1 if that has no such number.
  twin(place, from, to) {
    if (place < 0 || from === to) return place;
    const { name, shape, start } = this.engineOf(from).tensorOf(place);
    const tensor = this.engineOf(to).byName.get(name);
    return String(tensor?.shape) === String(shape) ? tensor.start + place - start : -1;
  }

  // The value of a number before the last action; undefined if the model then had no such number.
  was(place) {
    return this.before.values[this.twin(place, this.number, this.before.number)];
  }

  // The engine with all values and gradients of the state before the last action.
  get earlier() {
    const { values, held } = this.before;
    const view = Object.assign(Object.create(this.engine), {
      values: values.slice(),
      held,
      gradients: new Float64Array(values.length),
    });
    view.back();
    return view;
  }
}
