// The reader's changes: applied to one or two runs, undone, stored in the URL.
import { Engine } from "./engine.mjs";

const KEPT = 200; // changes that can be undone

export class State {
  constructor(runs) {
    this.runs = runs;
    this.engines = new Map();
    this.past = [];
    this.losses = [];
    this.number = 0;
    this.with = -1;
    this.choose(0);
  }

  engineOf(number) {
    if (!this.engines.has(number)) this.engines.set(number, new Engine(this.runs[number]));
    return this.engines.get(number);
  }

  get engine() {
    return this.engineOf(this.number);
  }

  get other() {
    return this.with < 0 || this.with === this.number ? null : this.engineOf(this.with);
  }

  // Select another configuration, and apply the changes there too.
  choose(number) {
    const changes = this.engines.has(this.number) ? this.written() : {};
    this.number = number;
    this.missing = this.#load(this.engine, changes);
    this.before = this.engine.values.slice();
    this.losses = [];
    this.follow();
  }

  compare(number) {
    this.with = number;
    this.follow();
  }

  // Compute everything that depends on the changes.
  follow() {
    this.engine.run();
    this.engine.back();
    if (this.other) this.#load(this.other, this.written());
  }

  // Begin a change: "before" shows this state, and undo returns to it.
  begin() {
    this.past.push({ changes: this.written(), losses: [...this.losses] });
    if (this.past.length > KEPT) this.past.shift();
    this.before = this.engine.values.slice();
  }

  put(place, value) {
    this.engine.put(place, value);
    this.follow();
  }

  undo() {
    const last = this.past.pop();
    if (!last) return false;
    this.before = this.engine.values.slice();
    this.#load(this.engine, last.changes);
    this.losses = last.losses;
    this.follow();
    return true;
  }

  reset() {
    this.begin();
    this.#load(this.engine, {});
    this.losses = [];
    this.follow();
  }

  learn(rate) {
    const { engine } = this;
    if (!this.losses.length) this.losses.push(engine.values[engine.target]);
    engine.learn(rate);
    this.follow();
    this.losses.push(engine.values[engine.target]);
  }

  // The changes by the names of tensors: name -> { shape, numbers: [[element, number], ...] }.
  written() {
    const { engine } = this;
    const found = {};
    for (const [place, value] of engine.changes()) {
      const { name, shape, start } = engine.tensors[engine.home[place]];
      found[name] ??= { shape, numbers: [] };
      found[name].numbers.push([place - start, value]);
    }
    return found;
  }

  // Reset an engine, then apply the changes to tensors that it has; returns the other names.
  #load(engine, changes) {
    for (const place of engine.changes().keys()) engine.restore(place);
    const missing = [];
    for (const [name, { shape, numbers }] of Object.entries(changes)) {
      const tensor = engine.byName.get(name);
      // In a tensor of another shape, the index would mean another number.
      if (String(tensor?.shape) !== String(shape)) missing.push(name);
      else for (const [element, value] of numbers) engine.put(tensor.start + element, value);
    }
    engine.run();
    engine.back();
    return missing;
  }

  // The URL fragment of this state, without the #.
  address(chosen, extra = {}) {
    const parts = new URLSearchParams();
    parts.set("run", this.number);
    if (this.other) parts.set("with", this.with);
    if (chosen >= 0) {
      const tensor = this.engine.tensors[this.engine.home[chosen]];
      parts.set("at", `${tensor.name}:${chosen - tensor.start}`);
    }
    for (const [key, value] of Object.entries(extra)) parts.set(key, value);
    for (const [name, { numbers }] of Object.entries(this.written())) {
      parts.set(`set.${name}`, numbers.map(([element, value]) => `${element}:${value}`).join(","));
    }
    return parts.toString();
  }

  // Read a URL fragment. Returns [chosen element or -1, the parts that do not fit].
  open(address) {
    const parts = new URLSearchParams(address);
    const unknown = [];
    const whole = (text, size) => (/^\d+$/.test(text) && Number(text) < size ? Number(text) : -1);
    const chosen = (key) => {
      const number = whole(parts.get(key), this.runs.length);
      if (parts.has(key) && number < 0) unknown.push(`${key}=${parts.get(key)}`);
      return number;
    };
    this.number = Math.max(chosen("run"), 0);
    this.with = chosen("with");
    this.#load(this.engine, {});
    const changes = {};
    for (const [key, text] of parts) {
      if (!key.startsWith("set.")) continue;
      const tensor = this.engine.byName.get(key.slice(4));
      const pairs = text.split(",").map((pair) => pair.split(":"));
      const fits = pairs.every(([element, value, ...more]) => {
        const place = tensor ? whole(element, tensor.size) : -1;
        return (
          place >= 0 &&
          value?.trim() &&
          !more.length &&
          this.engine.takes(tensor.start + place, Number(value))
        );
      });
      if (!fits) unknown.push(key);
      else
        changes[tensor.name] = {
          shape: tensor.shape,
          numbers: pairs.map((pair) => pair.map(Number)),
        };
    }
    this.#load(this.engine, changes);
    this.before = this.engine.original;
    this.losses = [];
    this.past = [];
    this.follow();
    const [name, element] = (parts.get("at") ?? "").split(":");
    const tensor = this.engine.byName.get(name);
    const at = tensor ? whole(element, tensor.size) : -1;
    if (name && at < 0) unknown.push(`at=${parts.get("at")}`);
    return [at < 0 ? -1 : tensor.start + at, unknown];
  }
}
