// Output of the model: logits and probabilities of the next word, the loss, and training.
import { at, begin, button, change, data, has, make, named, onDraw, refresh, settle, shown, state, svg, view } from "./core.mjs";
import { cell } from "./cells.mjs";
import { message } from "./messages.mjs";
import { faceOf, spoken, textOf, wordOf, worded } from "./names.mjs";

const MOST = 1000; // maximum number of training steps
const TAUGHT = 0.05; // loss at which training ends

const SCORES = "cross_entropy.log_probabilities";
export const speaks = () => Boolean(data.vocab) && has(SCORES) && has("logits");
const writes = () => (has("tgt") ? "tgt" : "ids");
// The ids of an input sentence.
export const idsOf = (batch) => {
  const { start, shape: [, length] } = named("src") ?? named("ids");
  return Array.from(shown().values.subarray(start + batch * length, start + (batch + 1) * length));
};

const argmax = (values, start, count) => {
  let best = 0;
  for (let i = 1; i < count; i++) if (values[start + i] > values[start + best]) best = i;
  return best;
};

// The prediction at each position of a sentence: word, label, and whether they agree.
export const written = (batch, values = shown().values) => {
  const { start, shape } = named(SCORES);
  const [, positions, words] = shape;
  return Array.from({ length: positions }, (_, position) => {
    const id = argmax(values, start + (batch * positions + position) * words, words);
    const label = values[at("cross_entropy.labels", batch, position)];
    return { id, word: data.vocab[id], label, graded: label >= 0, right: id === label };
  });
};
export const verdict = ({ word, label, graded, right }) =>
  !graded
    ? message("says {word}, not graded", { word })
    : right
      ? message("✓ says {word}", { word })
      : message("✗ says {word}, should say {label}", { word, label: data.vocab[label] });

export const wordChoice = (place, side, position, label) => {
  const node = make("select", { "aria-label": label });
  const ids = [...data.vocab.keys(), ...(side === "labels" ? [-100] : [])];
  node.append(...ids.map((id) => make("option", { value: id }, wordOf(id, side, position))));
  node.addEventListener("change", () => change([place, Number(node.value)]));
  const face = make("span");
  onDraw(() => {
    node.value = shown().values[place];
    if (side !== "labels") face.replaceChildren(faceOf(data.vocab[shown().values[place]]));
  });
  return make("span", { class: "word" }, face, node);
};

// A table of the logits of a sentence: one row per word, one column per position.
export const scores = (batch) => {
  const [logits, chances] = [named("logits"), named(SCORES)];
  const [, positions, words] = logits.shape;
  const head = make("tr", {}, make("td"));
  const wanted = make("tr", {}, make("th", { scope: "row" }, message("should be")));
  const said = make("tr", {}, make("th", { scope: "row" }, message("says")));
  const body = make("tbody");
  for (let id = 0; id < words; id++) {
    const row = make("tr", {}, make("th", { scope: "row", title: data.vocab[id] }, ...worded(data.vocab[id])));
    for (let position = 0; position < positions; position++) {
      const element = (batch * positions + position) * words + id;
      const node = make("td", { class: "chance" }, cell(logits.start + element));
      onDraw(() => {
        const chance = Math.exp(shown().values[chances.start + element]);
        node.style.setProperty("--p", `${(100 * chance).toFixed(1)}%`);
        node.dataset.share = `${(100 * chance).toFixed(0)}%`;
        node.classList.toggle("wanted", shown().values[at("cross_entropy.labels", batch, position)] === id);
      });
      row.append(node);
    }
    body.append(row);
  }
  for (let position = 0; position < positions; position++) {
    const after = make("th", { scope: "col" });
    const label = message("label {label} of sentence {sentence}", { label: position + 1, sentence: batch + 1 });
    const answer = make("td", { class: "verdict" });
    head.append(after);
    wanted.append(make("td", {}, wordChoice(at("cross_entropy.labels", batch, position), "labels", -1, label)));
    said.append(answer);
    onDraw(() => {
      const heard = Array.from({ length: position + 1 }, (_, i) =>
        wordOf(shown().values[at(writes(), batch, i)], writes(), i),
      );
      after.textContent = message("after {words}", { words: heard.join(" ") });
      const { word, graded, right } = written(batch)[position];
      answer.textContent = graded ? `${right ? "✓" : "✗"} ${word}` : message("{word} (not graded)", { word });
      answer.classList.toggle("right", graded && right);
      answer.classList.toggle("wrong", graded && !right);
    });
  }
  const table = make("table", {}, make("thead", {}, head), body, make("tfoot", {}, wanted, said));
  return make("div", { class: "tables scores" }, table);
};

// --- learning ---

export const teaching = { rate: 0.3 };
const step = () => state.learn(teaching.rate);
const teachOnce = () => {
  begin();
  step();
  settle();
};
export const teach = () => {
  if (view.teaching) {
    view.teaching = false;
    return settle();
  }
  begin();
  view.teaching = true;
  const go = () => {
    if (!view.teaching) return;
    step();
    const loss = state.losses.at(-1);
    if (loss > TAUGHT && state.steps < MOST && Number.isFinite(loss)) {
      refresh();
      requestAnimationFrame(go);
    } else {
      view.teaching = false;
      settle();
    }
  };
  requestAnimationFrame(go);
  refresh();
};
export const teachButton = () => {
  const node = button("", teach, { class: "teach" });
  onDraw(() => {
    node.textContent = view.teaching ? message("Stop") : message("Teach it");
    node.setAttribute("aria-pressed", view.teaching);
  });
  return node;
};

// A curve of the losses since the first step, with the loss of a blind guess as a dashed line.
export const curve = (attributes) => {
  const guess = data.vocab ? Math.log(data.vocab.length) : 0;
  const line = svg("polyline", { "vector-effect": "non-scaling-stroke" });
  const dashed = svg("line", { x1: 0, x2: 200, "vector-effect": "non-scaling-stroke" });
  const node = svg("svg", { viewBox: "0 0 200 60", preserveAspectRatio: "none", ...attributes }, dashed, line);
  onDraw(() => {
    const all = state.losses.length ? state.losses : [shown().values[state.engine.target]];
    const most = Math.max(...all.filter(Number.isFinite), guess) * 1.1;
    const y = (loss) => (58 - (Math.min(loss, most) / most) * 56).toFixed(1);
    const x = (i) => ((i / Math.max(1, all.length - 1)) * 196 + 2).toFixed(1);
    const points = all.map((loss, i) => `${x(i)},${y(Number.isFinite(loss) ? loss : most)}`);
    line.setAttribute("points", (all.length > 1 ? points : [...points, `198,${y(all[0])}`]).join(" "));
    for (const end of ["y1", "y2"]) dashed.setAttribute(end, guess ? y(guess) : -9);
  });
  return node;
};

export const lossCell = () =>
  make("p", { class: "loss tables" }, make("span", {}, message("loss")), " ", cell(state.engine.target));

// The button for one training step, and the learning rate.
export const teachTools = () => {
  const input = make("input", { type: "number", class: "rate", value: teaching.rate, min: 0.001, max: 10, step: 0.1 });
  input.addEventListener("input", () => {
    teaching.rate = Number(input.value) > 0 ? Number(input.value) : teaching.rate;
  });
  return [button(message("One step"), teachOnce), make("label", {}, message("learning rate"), " ", input)];
};

// The panel of a lesson: loss, training controls and loss curve.
export const lossPanel = ({ rate }) => {
  teaching.rate = rate;
  const large = curve({ class: "curve", role: "img" });
  onDraw(() => {
    const [first, last] = [state.losses[0], state.losses.at(-1)].map((loss) => loss?.toFixed(4));
    large.setAttribute("aria-label", state.steps
      ? message("Steps: {count}. The loss went from {first} to {last}.", { count: state.steps, first, last })
      : message("Each step moves all {count} weights against their gradients.", { count: state.engine.weights.length }));
  });
  return make("div", {}, lossCell(), make("div", { class: "bar" }, teachButton(), ...teachTools()), large, blindGuess());
};
export const blindGuess = () => {
  const loss = Math.log(data.vocab?.length ?? 1).toFixed(4);
  return make("span", { class: "guess", title: message("Equal chances for every word: a loss of {loss}", { loss }) }, message("blind guess"));
};

export const announce = () => {
  const { target } = state.engine;
  const parts = [];
  if (view.chosen >= 0) parts.push(message("{name} is {value}", { name: spoken(view.chosen), value: textOf(view.chosen) }));
  if (target >= 0) {
    const [now, before] = [state.engine.values[target], state.was(target)].map((loss) => loss?.toFixed(4));
    parts.push(message("loss {now}, before {before}", { now, before }));
  }
  if (speaks()) parts.push(...written(view.front).map(verdict));
  return parts.join("; ");
};
