// The page: its parts, and the reaction to every input.
import { message, translate } from "./messages.mjs";
import { elementText, explain, formatNumber } from "./writer.mjs";
import { State } from "./state.mjs";

const MANY = 12; // the first entries of a longer list that are shown
const RATE = 0.3;
const STRETCHES = [
  ["× 10", (x) => x * 10],
  ["÷ 10", (x) => x / 10],
  ["+ 5", (x) => x + 5],
  ["− 5", (x) => x - 5],
  ["× (−1)", (x) => -x],
];
const BESIDE = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

const byId = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};

const unpack = async () => {
  const bytes = Uint8Array.from(atob(byId("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
};

const data = await unpack();
translate(data.messages);
const state = new State(data.runs);
// Functions that redraw after a change, by the part of the page.
const drawn = { words: [], walk: [], number: [], used: [], cells: [] };
let scope = "walk";
let chosen = -1;
let trail = [];
let showsBefore = false;
let stop = -1; // of the tour
let learning = false;
let limits = new Map();

const within = (name, build) => {
  const outer = scope;
  scope = name;
  drawn[name] = [];
  try {
    return build();
  } finally {
    scope = outer;
  }
};
const onDraw = (draw) => drawn[scope].push(draw);

const tensorOf = (place) => state.engine.tensors[state.engine.home[place]];
const has = (name) => state.engine.byName.has(name);
const shown = () => (showsBefore ? state.before : state.engine.values);
const at = (name, ...index) => state.engine.place(name, index);

// --- words ---

const wordOf = (id, side, position) => {
  if (id < 0) return message("ignored");
  if (side === "tgt" && id === 0 && position === 0) return "<start>";
  return data.vocab?.[id] ?? String(id);
};

const wordAt = (tensor, axis, index) => {
  const words = tensor.words[axis];
  if (tensor.axes[axis] === "1") return "";
  if (Array.isArray(words)) {
    const own = Array.isArray(words[0]) ? words[index[tensor.axes.indexOf("batch")] ?? 0] : words;
    return own[index[axis]];
  }
  if (typeof words !== "string") return String(index[axis]);
  const batch = index[tensor.axes.indexOf("batch")];
  return wordOf(state.engine.values[at(words, batch, index[axis])], words, index[axis]);
};

// The face of a word, which screen readers skip; "" for a word without a face.
const faceOf = (word) => {
  if (!byId(`face-${word}`)) return "";
  const parts = ["svg", "use"].map((tag) =>
    document.createElementNS("http://www.w3.org/2000/svg", tag),
  );
  parts[0].setAttribute("class", "face");
  parts[0].setAttribute("aria-hidden", "true");
  parts[1].setAttribute("href", `#face-${word}`);
  parts[0].append(parts[1]);
  return parts[0];
};

// A readable name, "self_attention.weights, head 0, query dog, key fish", and the traced name.
const spoken = (place) => {
  const tensor = tensorOf(place);
  const index = state.engine.index(place);
  const worded = tensor.words.some((words) => typeof words === "string");
  const parts = [tensor.name.split(".").slice(-2).join(".")];
  index.forEach((_i, axis) => {
    if (tensor.shape[axis] === 1 || (worded && tensor.axes[axis] === "batch")) return;
    const name = axisName(tensor, axis);
    const word = wordAt(tensor, axis, index);
    parts.push(["src", "tgt", "seq"].includes(name) && worded ? word : `${name} ${word}`.trim());
  });
  return parts.join(", ");
};

const textOf = (place, values = shown()) => {
  const { type } = tensorOf(place);
  return type === "bool" ? (values[place] ? "True" : "·") : formatNumber(values[place], type);
};

// --- one number ---

const paint = (node) => {
  const place = Number(node.dataset.at);
  const { engine, other } = state;
  const tensor = tensorOf(place);
  const value = shown()[place];
  const text = textOf(place);
  if (node.tagName === "INPUT") {
    if (document.activeElement !== node || !node.dataset.typing) node.value = text;
    node.setAttribute("aria-valuenow", value);
  } else {
    // Two decimals fit side by side.
    const short = (written) => (node.closest(".heads") ? Number(written).toFixed(2) : written);
    node.firstChild.data = short(text);
    const twin = other?.byName.get(tensor.name);
    const same = twin && String(twin.shape) === String(tensor.shape);
    const small = node.querySelector("small");
    if (!other) small?.remove();
    else {
      const words = same
        ? short(formatNumber(other.values[twin.start + place - tensor.start], tensor.type))
        : "–";
      if (small) small.textContent = words;
      else node.append(make("small", {}, words));
    }
  }
  if (!limits.has(tensor)) {
    let largest = 0;
    for (let i = tensor.start; i < tensor.start + tensor.size; i++) {
      const size = Math.abs(shown()[i]);
      if (size > largest && size < Infinity) largest = size;
    }
    limits.set(tensor, largest);
  }
  const share = tensor.name.endsWith(".weights");
  const strength = share ? value : Math.abs(value) / limits.get(tensor);
  const filled = tensor.type === "float" && Number.isFinite(strength) ? Math.min(1, strength) : 0;
  node.style.setProperty("--f", `${(filled * 100).toFixed(0)}%`);
  node.classList.toggle("share", share);
  node.classList.toggle("up", !share && value > 0);
  node.classList.toggle("down", !share && value < 0);
  node.classList.toggle("moved", textOf(place, engine.values) !== textOf(place, state.before));
  node.classList.toggle("held", engine.held.has(place));
  if (place === chosen) node.setAttribute("aria-current", "true");
  else node.removeAttribute("aria-current");
};

const numberNode = (place, dials = false, label = null) => {
  const flips = dials && tensorOf(place).type === "bool";
  const dial = dials && !flips;
  const node = dial
    ? make("input", {
        class: "n",
        type: "text",
        inputmode: "decimal",
        role: "spinbutton",
        autocomplete: "off",
        "aria-label": label ?? spoken(place),
      })
    : data.panels && !flips
      ? make("span", { class: "n" }) // a part of the page is too small to explain a number
      : make("button", { class: "n", type: "button", "aria-label": label });
  if (!dial) node.append(document.createTextNode(""));
  if (flips) {
    node.dataset.flips = "true";
    onDraw(() => node.setAttribute("aria-pressed", Boolean(shown()[place])));
  }
  node.dataset.at = place;
  onDraw(() => paint(node));
  return node;
};

// --- tables ---

const axisName = (tensor, axis) => {
  if (!/^\d*$/.test(tensor.axes[axis])) return tensor.axes[axis];
  if (tensor.axes[axis] || !tensor.weight) return "";
  // A matrix of a linear layer, or of an embedding.
  if (tensor.shape.length !== 2) return "";
  return (tensor.name.includes("embedding") ? ["word", "d_model"] : ["out", "in"])[axis];
};

// Tables of the last two axes; `fixed` takes one index of a leading axis, such as { batch: 1 }.
const tablesOf = (tensor, { fixed = {}, dials = false, lit = null } = {}) => {
  const rank = tensor.shape.length;
  const columns = rank ? tensor.shape[rank - 1] : 1;
  const rows = rank > 1 ? tensor.shape[rank - 2] : 1;
  const holder = make("div", { class: "tables" });
  for (let start = tensor.start; start < tensor.start + tensor.size; start += rows * columns) {
    const lead = state.engine.index(start);
    const wanted = tensor.axes.slice(0, Math.max(0, rank - 2));
    if (wanted.some((axis, n) => axis in fixed && fixed[axis] !== lead[n])) continue;
    holder.append(tableOf(tensor, start, rows, columns, dials, lit));
  }
  const first = holder.querySelector("button.n[aria-current]") ?? holder.querySelector("button.n");
  for (const node of holder.querySelectorAll("button.n")) node.tabIndex = node === first ? 0 : -1;
  return holder;
};

// The sentences of a batch in one table, one below the other.
const joinedOf = (tensor) => {
  const holder = tablesOf(tensor, { fixed: { batch: 0 } });
  const body = holder.querySelector("tbody");
  body
    .querySelector("[scope=rowgroup]")
    ?.setAttribute("rowspan", tensor.shape[0] * tensor.shape[1]);
  holder.querySelector("caption").remove();
  const [batches, rows, columns] = tensor.shape;
  for (let batch = 1; batch < batches; batch++) {
    const table = tableOf(
      tensor,
      tensor.start + batch * rows * columns,
      rows,
      columns,
      false,
      null,
    );
    const lines = [...table.querySelectorAll("tbody tr")];
    lines[0].querySelector("[scope=rowgroup]")?.remove();
    lines[0].className = "next";
    for (const node of table.querySelectorAll("tbody .n")) node.tabIndex = -1;
    body.append(...lines);
  }
  return holder;
};

// The heads of an attention side by side, one row for each query.
const headsOf = (tensor) => {
  const [batches, heads, queries, keys] = tensor.shape;
  const holder = make("div", { class: "tables" });
  for (let batch = 0; batch < batches; batch++) {
    const table = make("table", { class: "heads" });
    const top = make("tr", {}, make("td"));
    const names = make("tr", {}, make("td"));
    for (let head = 0; head < heads; head++) {
      top.append(
        make(
          "th",
          { scope: "colgroup", colspan: keys, style: `--axis: ${data.styles.head}` },
          message("head {number}", { number: head }),
        ),
      );
      for (let key = 0; key < keys; key++)
        names.append(headWord("col", tensor, 3, [batch, head, 0, key]));
    }
    const body = make("tbody");
    for (let query = 0; query < queries; query++) {
      const row = make("tr", {}, headWord("row", tensor, 2, [batch, 0, query, 0]));
      for (let head = 0; head < heads; head++) {
        for (let key = 0; key < keys; key++)
          row.append(make("td", {}, numberNode(at(tensor.name, batch, head, query, key))));
      }
      body.append(row);
    }
    table.append(make("thead", {}, top, names), body);
    holder.append(table);
  }
  holder.querySelectorAll("button.n").forEach((node, n) => {
    node.tabIndex = n ? -1 : 0;
  });
  return holder;
};

const headWord = (scope, tensor, axis, index) => {
  const node = make("th", { scope });
  onDraw(() => {
    const word = wordAt(tensor, axis, index);
    if (node.textContent !== word) node.replaceChildren(faceOf(word), word);
  });
  return node;
};

const tableOf = (tensor, start, rows, columns, dials, lit) => {
  const rank = tensor.shape.length;
  const lead = state.engine.index(start);
  const titles = lead
    .slice(0, Math.max(0, rank - 2))
    .map((i, n) => (tensor.axes[n] === "1" ? "" : `${axisName(tensor, n)} ${i}`.trim()))
    .filter(Boolean);
  const table = make("table");
  table.append(make("caption", {}, titles.join(", ") || tensor.name.split(".").at(-1)));
  const head = make("thead");
  const style = (axis) =>
    `--axis: ${data.styles[tensor.axes[axis]?.split("*").at(-1)] ?? data.neutral}`;
  const word = (scope, axis, place) => headWord(scope, tensor, axis, state.engine.index(place));
  if (rank) {
    const name = axisName(tensor, rank - 1);
    const names = make("tr", {}, make("td", { colspan: 2 }));
    if (name) {
      head.append(
        make(
          "tr",
          {},
          make("td", { colspan: 2 }),
          make("th", { scope: "colgroup", colspan: columns, style: style(rank - 1) }, name),
        ),
      );
    }
    for (let j = 0; j < columns; j++) names.append(word("col", rank - 1, start + j));
    head.append(names);
  }
  const body = make("tbody");
  for (let i = 0; i < rows; i++) {
    const row = make("tr");
    if (rank > 1 && i === 0) {
      row.append(
        make(
          "th",
          { scope: "rowgroup", rowspan: rows, style: style(rank - 2) },
          axisName(tensor, rank - 2),
        ),
      );
    }
    if (rank > 1) row.append(word("row", rank - 2, start + i * columns));
    else row.append(make("td", { colspan: 2 }));
    for (let j = 0; j < columns; j++) {
      const place = start + i * columns + j;
      const node = numberNode(place, dials);
      if (lit?.has(place)) node.classList.add("lit");
      row.append(make("td", {}, node));
    }
    body.append(row);
  }
  table.append(head, body);
  return table;
};

// --- the parts of the walk ---

const wordChoice = (place, side, position, label) => {
  const node = make("select", { "aria-label": label });
  const ids = data.vocab.map((_, id) => id);
  if (side === "labels") ids.push(-100);
  for (const id of ids) {
    node.append(make("option", { value: id }, wordOf(id, side, position)));
  }
  node.addEventListener("change", () => change(place, Number(node.value)));
  const face = make("span");
  onDraw(() => {
    node.value = shown()[place];
    face.replaceChildren(faceOf(data.vocab[shown()[place]]));
  });
  return make("span", { class: "word" }, face, node);
};

const PANELS = {
  // The words of one side, and the embedding row of each.
  words({ side, of = `${side}_embedding.weight` }) {
    const ids = state.engine.byName.get(side);
    const table = state.engine.byName.get(of);
    if (!ids || !table || !data.vocab) return null;
    const holder = make("div");
    for (let batch = 0; batch < ids.shape[0]; batch++) {
      const sentence = make("div", {
        class: "sentence",
        role: "group",
        "aria-label": message("sentence {number}", { number: batch + 1 }),
      });
      for (let position = 0; position < ids.shape[1]; position++) {
        const place = at(side, batch, position);
        const row = make("div", { class: "token", style: `--width: ${table.shape[1]}` });
        row.append(
          wordChoice(
            place,
            side,
            position,
            message("sentence {sentence}, word {word}", {
              sentence: batch + 1,
              word: position + 1,
            }),
          ),
        );
        for (let d = 0; d < table.shape[1]; d++) {
          const dial = numberNode(table.start + d, true, "");
          drawn.words.push(() => {
            const id = state.engine.values[place];
            dial.dataset.at = table.start + id * table.shape[1] + d;
            dial.setAttribute(
              "aria-label",
              message("{word}, number {number} of its embedding", {
                word: wordOf(id, side, position),
                number: d + 1,
              }),
            );
          });
          row.append(dial);
        }
        sentence.append(row);
      }
      holder.append(sentence);
    }
    return holder;
  },

  // The attention weights, a small grid for each sentence and head.
  attention({ of, fixed }) {
    const tensor = state.engine.byName.get(`${of}.weights`);
    if (!tensor) return null;
    return fixed ? tablesOf(tensor, { fixed }) : headsOf(tensor);
  },

  table({ of, fixed, dials }) {
    if (!has(of)) return null;
    const tensor = state.engine.byName.get(of);
    if (!fixed && !dials && tensor.shape.length === 3) return joinedOf(tensor);
    return tablesOf(tensor, { fixed, dials });
  },

  // A table above a switch that fixes all its numbers at one value.
  hold({ of, fixed, dials, value, says }) {
    const { start, size } = state.engine.byName.get(of);
    const places = Array.from({ length: size }, (_, i) => start + i);
    const isHeld = () => places.every((place) => state.engine.values[place] === value);
    const button = make("button", { type: "button" }, says);
    button.addEventListener("click", () => {
      const held = isHeld();
      changeAll(places.map((place) => [place, held ? null : value]));
    });
    onDraw(() => button.setAttribute("aria-pressed", isHeld()));
    return make(
      "div",
      {},
      PANELS.table({ of, fixed, dials }),
      make("div", { class: "bar" }, button),
    );
  },

  // One row to drag, and buttons that change the whole row.
  stretch({ of, fixed, row }) {
    const tensor = state.engine.byName.get(of);
    const width = tensor.shape.at(-1);
    const start = at(of, ...row, 0);
    const bar = make("div", { class: "bar" });
    for (const [says, turn] of STRETCHES) {
      const button = make("button", { type: "button" }, says);
      button.addEventListener("click", () =>
        changeAll(
          Array.from({ length: width }, (_, i) => [
            start + i,
            Number(turn(state.engine.values[start + i]).toPrecision(12)),
          ]),
        ),
      );
      bar.append(button);
    }
    return make("div", {}, tablesOf(tensor, { fixed, dials: true }), bar);
  },

  // A weight and its gradient, row by row.
  gradients({ of, words }) {
    const tensor = state.engine.byName.get(of);
    const head = make(
      "tr",
      {},
      make("td"),
      make("th", { scope: "col" }, message("weight")),
      make("th", { scope: "col" }, message("gradient")),
    );
    const body = make("tbody");
    for (let i = 0; i < tensor.size; i++) {
      const slope = make("td", { class: "slope" });
      onDraw(() => {
        slope.textContent = formatNumber(state.engine.gradients[tensor.start + i]);
      });
      body.append(
        make(
          "tr",
          {},
          make("th", { scope: "row" }, words[i]),
          make("td", {}, numberNode(tensor.start + i, true, message("weight of {word}", { word: words[i] }))),
          slope,
        ),
      );
    }
    return make("div", { class: "tables" }, make("table", {}, make("thead", {}, head), body));
  },

  // The probability of each word after each target position, and the right word.
  prediction({ only = -1 }) {
    const chances = state.engine.byName.get("cross_entropy.log_probabilities");
    if (!chances || !data.vocab) return null;
    const holder = make("div", { class: "pairs" });
    const side = has("tgt") ? "tgt" : "ids";
    const [batches, positions, words] = chances.shape;
    for (let batch = 0; batch < batches; batch++) {
      for (let position = 0; position < positions && (only < 0 || only === batch); position++) {
        const label = at("cross_entropy.labels", batch, position);
        const verdict = make("span", { class: "verdict" });
        const before = make("span");
        const block = make(
          "div",
          { class: "sentence" },
          make(
            "div",
            { class: "bar" },
            before,
            make(
              "label",
              {},
              message("right:"),
              " ",
              wordChoice(
                label,
                "labels",
                -1,
                message("label {label} of sentence {sentence}", {
                  label: position + 1,
                  sentence: batch + 1,
                }),
              ),
            ),
            verdict,
          ),
        );
        const start = chances.start + (batch * positions + position) * words;
        for (let id = 0; id < words; id++) {
          const fill = make("div", { class: "fill" });
          const mark = make("span");
          const share = make("span");
          const track = make("div", { class: "track" }, fill);
          const row = make(
            "div",
            { class: "chances" },
            make("span", {}, faceOf(data.vocab[id]), data.vocab[id]),
            track,
            share,
            mark,
          );
          onDraw(() => {
            const chance = Math.exp(shown()[start + id]);
            fill.style.width = `${(chance * 100).toFixed(1)}%`;
            share.textContent = chance.toFixed(4);
            const wanted = shown()[label] === id;
            row.classList.toggle("wanted", wanted);
            mark.textContent = wanted ? "←" : "";
          });
          block.append(row);
        }
        onDraw(() => {
          const best = argmax(shown(), start, words);
          const wanted = shown()[label];
          const heard = Array.from({ length: position + 1 }, (_, i) =>
            wordOf(shown()[at(side, batch, i)], side, i),
          );
          before.textContent = message("after {words}:", { words: heard.join(" ") });
          verdict.textContent =
            wanted < 0
              ? message("{word}, not asked", { word: data.vocab[best] })
              : best === wanted
                ? message("✓ {word}, right", { word: data.vocab[best] })
                : message("✗ {word}, wrong", { word: data.vocab[best] });
          verdict.classList.toggle("right", best === wanted);
        });
        holder.append(block);
      }
    }
    return holder;
  },

  // The loss, and gradient descent on every weight.
  learn({ rate: first = RATE }) {
    if (state.engine.target < 0) return null;
    const step = make("button", { type: "button", id: "learn-step" }, message("Learn one step"));
    const run = make("button", { type: "button", id: "learn", "aria-pressed": "false" });
    const rate = make("input", {
      id: "rate",
      type: "number",
      value: first,
      min: 0.001,
      max: 10,
      step: 0.05,
      style: "width: 5.5em",
    });
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    const curve = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of Object.entries({
      class: "curve",
      viewBox: "0 0 200 60",
      preserveAspectRatio: "none",
      role: "img",
    }))
      curve.setAttribute(key, value);
    line.setAttribute("vector-effect", "non-scaling-stroke");
    curve.append(line);
    const words = make("p", { class: "note" });
    step.addEventListener("click", () => {
      begin();
      teach();
      settle();
    });
    run.addEventListener("click", () => (learning ? halt() : start()));
    const teach = () => state.learn(Number(rate.value) || first);
    const start = () => {
      begin();
      learning = true;
      const go = () => {
        if (!learning) return;
        teach();
        refresh();
        if (state.losses.length > 1000 || !Number.isFinite(state.losses.at(-1))) halt();
        else requestAnimationFrame(go);
      };
      requestAnimationFrame(go);
      refresh();
    };
    const halt = () => {
      learning = false;
      settle();
    };
    onDraw(() => {
      run.textContent = learning ? message("Stop") : message("Learn");
      run.setAttribute("aria-pressed", learning);
      const all = state.losses;
      const most = Math.max(...all, 1e-9);
      line.setAttribute(
        "points",
        all
          .map(
            (loss, i) =>
              `${((i / Math.max(1, all.length - 1)) * 196 + 2).toFixed(1)},${(57 - (loss / most) * 54).toFixed(1)}`,
          )
          .join(" "),
      );
      const losses = {
        count: all.length - 1,
        first: all[0]?.toFixed(4),
        last: all.at(-1)?.toFixed(4),
      };
      const said =
        all.length === 0
          ? message(
              "Gradient descent on all {count} weights: each step moves every weight against its gradient.",
              { count: state.engine.weights.length },
            )
          : all.length === 2
            ? message("The loss over {count} step: from {first} to {last}.", losses)
            : message("The loss over {count} steps: from {first} to {last}.", losses);
      words.textContent = said;
      curve.setAttribute("aria-label", said);
    });
    const loss = make("p", { class: "loss" }, message("loss"), " ", numberNode(state.engine.target));
    return make(
      "div",
      {},
      loss,
      make("div", { class: "bar" }, run, step, make("label", {}, message("rate"), " ", rate)),
      curve,
      words,
    );
  },
};

const argmax = (values, start, count) => {
  let best = 0;
  for (let i = 1; i < count; i++) if (values[start + i] > values[start + best]) best = i;
  return best;
};

const WALK = [
  {
    id: "words",
    title: message("Words"),
    panel: "words",
    side: "src",
    note: message("Three numbers each. Drag one sideways, type, or use the arrow keys; or choose another word."),
  },
  {
    id: "encoder",
    title: message("Encoder self-attention"),
    panel: "attention",
    of: "encoder.layers.0.self_attention",
    note: message("A row is a query, a column a key; each row of a head adds up to 1."),
  },
  {
    id: "memory",
    title: message("Memory"),
    panel: "table",
    of: "memory",
    note: message("What the encoder hands over."),
  },
  {
    id: "target",
    title: message("Target so far"),
    panel: "words",
    side: "tgt",
    note: message("The text so far; the decoder predicts the next word."),
  },
  {
    id: "cross",
    title: message("Cross-attention"),
    panel: "attention",
    of: "decoder.layers.0.cross_attention",
    note: message("The target gives the queries, the memory gives the keys and values."),
  },
  // The decoder-only model has no source; show the panels that the model has.
  {
    id: "text",
    title: message("Words"),
    panel: "words",
    side: "ids",
    of: "embedding.weight",
    note: message("Three numbers each. Drag one sideways, type, or use the arrow keys; or choose another word."),
  },
  {
    id: "mask",
    title: message("Mask"),
    panel: "table",
    of: "mask",
    dials: true,
    note: message("True allows attention: to no later word and no padding. Press an entry."),
  },
  {
    id: "looking-back",
    title: message("Self-attention"),
    panel: "attention",
    of: "layers.0.self_attention",
    note: message("A row is a query, a column a key; each row of a head adds up to 1, if it sees anything."),
  },
  {
    id: "output",
    title: message("Decoder output"),
    panel: "table",
    of: "decoder_output",
    note: message("The logits are made of these."),
  },
  { id: "prediction", title: message("Which word is next?"), panel: "prediction" },
  { id: "learning", title: message("Loss"), panel: "learn" },
];

// A part of a lesson names its texts in English.
const translated = (options) => {
  const texts = ["title", "note", "says"].filter((name) => options[name]);
  return { ...options, ...Object.fromEntries(texts.map((name) => [name, message(options[name])])) };
};

const walk = () => {
  const parts = [];
  for (const options of data.panels?.map(translated) ?? WALK) {
    const body = PANELS[options.panel](options);
    if (!body) continue;
    const part = make("section", {
      id: options.id ?? null,
      class: options.panel,
      "aria-label": options.title,
    });
    part.append(make("h2", {}, options.title));
    if (options.note) part.append(make("p", { class: "note" }, options.note));
    part.append(body);
    parts.push(part);
  }
  byId("walk").replaceChildren(...parts);
};

// --- the chosen number ---

const element = (place) => {
  const button = make(
    "button",
    { type: "button", title: elementText(state.engine, place) },
    spoken(place),
  );
  button.addEventListener("click", () => choose(place));
  return button;
};

const listOf = (places, describe) => {
  const list = make("ul", { class: "list" });
  const add = (from, to) => {
    for (const place of places.slice(from, to))
      list.append(make("li", {}, describe(place), element(place)));
  };
  add(0, MANY);
  if (places.length > MANY) {
    const more = make("button", { type: "button" }, message("and {count} more", { count: places.length - MANY }));
    more.addEventListener("click", () => {
      more.parentElement.remove();
      add(MANY, places.length);
    });
    list.append(make("li", {}, more));
  }
  return list;
};

const editor = (place) => {
  const tensor = tensorOf(place);
  const holder = make("div", { class: "bar" });
  if (tensor.type === "bool") {
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => change(place, Number(box.checked)));
    onDraw(() => {
      box.checked = Boolean(state.engine.values[place]);
    });
    holder.append(make("label", {}, box, " ", message("True")));
  } else if (tensor.type === "int") {
    const side = tensor.name.endsWith("labels") ? "labels" : tensor.name;
    const position = state.engine.index(place).at(-1);
    if (data.vocab) holder.append(wordChoice(place, side, position, message("word")));
  } else {
    const value = Number.isFinite(state.engine.values[place]) ? state.engine.values[place] : 0;
    const reach = Math.max(2, 2 * Math.abs(value));
    const range = make("input", {
      type: "range",
      min: value - reach,
      max: value + reach,
      step: "any",
      "aria-label": message("change {number}", { number: spoken(place) }),
    });
    // A change begins with the first move: a touch alone changes nothing.
    let moving = false;
    range.addEventListener("input", () => {
      if (!moving) begin();
      moving = true;
      move(place, Number(range.value));
    });
    range.addEventListener("change", () => {
      moving = false;
      settle();
    });
    onDraw(() => {
      if (document.activeElement !== range) range.value = state.engine.values[place];
    });
    const dial = numberNode(place, true);
    dial.style.width = "7em";
    holder.append(dial, range);
  }
  const back = make(
    "button",
    { type: "button" },
    state.engine.trees[place] === null ? message("As it was") : message("Follow again"),
  );
  back.addEventListener("click", () => {
    begin();
    state.engine.restore(place);
    state.follow();
    settle();
  });
  onDraw(() => {
    back.hidden = !state.engine.changes().has(place);
  });
  holder.append(back);
  return holder;
};

// Everything about the chosen number; rebuilt when another number is chosen.
const showNumber = () => within("number", buildNumber);
const buildNumber = () => {
  drawn.used = [];
  const section = byId("number");
  section.hidden = chosen < 0;
  if (chosen < 0) return;
  const place = chosen;
  const tensor = tensorOf(place);
  const crumbs = make("ol", { class: "trail", "aria-label": message("How you came here") });
  for (const each of trail.slice(-6)) crumbs.append(make("li", {}, element(each)));
  const title = make("h2", { tabindex: -1, id: "name" }, spoken(place));
  const lines = make("pre", { id: "text" });
  const beside = make("pre");
  const used = make("div", { id: "inputs" });
  const slope = make("pre", { id: "gradient" });
  const onward = make("div");
  const through = make("div");
  const other = make("div", {}, make("h3", { id: "beside" }), beside);
  section.replaceChildren(
    crumbs,
    title,
    make(
      "p",
      { class: "note" },
      make("code", {}, elementText(state.engine, place)),
      tensor.step ? `, ${message("step {number}", { number: tensor.step })}` : "",
    ),
    editor(place),
    make("div", { class: "two" }, make("div", {}, lines), other),
    make("h3", {}, message("Made of")),
    used,
    make("h3", {}, message("Goes into")),
    onward,
    make("h3", {}, message("Gradient of the loss")),
    slope,
    through,
  );
  const uses = state.engine.uses(place);
  onward.append(uses.length ? listOf(uses, () => "") : message("nothing that has a name"));
  let framed = "";
  let chain = "";
  onDraw(() => {
    const { engine } = state;
    const found = explain(engine, place);
    lines.textContent = found.lines.slice(1).join("\n");
    other.hidden = !state.other;
    if (state.other) {
      const twin = state.other.byName.get(tensor.name);
      const fits = String(twin?.shape) === String(tensor.shape);
      byId("beside").textContent = data.runs[state.with].title;
      beside.textContent = fits
        ? explain(state.other, twin.start + place - tensor.start)
            .lines.slice(1)
            .join("\n")
        : message("has no such number");
    }
    if (framed !== String(found.used)) {
      framed = String(found.used);
      used.replaceChildren(...within("used", () => operands(found.used)));
      redraw("used");
    }
    if (engine.target < 0) {
      slope.textContent = message("The run ends with no loss.");
      return;
    }
    if (tensor.type !== "float") {
      slope.textContent = message("None: this number cannot change by a small amount.");
      return;
    }
    const gradient = engine.gradients[place];
    const parts = uses
      .map((later) => [later, engine.gradients[later], engine.slopes(later).get(place) ?? 0])
      .filter(([, arrived, own]) => arrived * own !== 0)
      .sort((a, b) => Math.abs(b[1] * b[2]) - Math.abs(a[1] * a[2]));
    slope.textContent =
      place === engine.target
        ? message("1: it is the loss")
        : parts.length
          ? message("= {gradient}, the sum of the gradients through:", {
              gradient: formatNumber(gradient),
            })
          : `= ${formatNumber(gradient)}`;
    const key = parts.map(([later, arrived, own]) => `${later}:${arrived}:${own}`).join();
    if (key !== chain) {
      chain = key;
      const shares = new Map(
        parts.map(([later, arrived, own]) => [
          later,
          `${formatNumber(arrived)} · ${formatNumber(own)} = ${formatNumber(arrived * own)} `,
        ]),
      );
      through.replaceChildren(
        listOf(
          parts.map(([later]) => later),
          (later) => shares.get(later),
        ),
      );
    }
  });
};

// Tables of the operands of a number, with the used elements in frames.
const operands = (used) => {
  if (!used.length) return [message("nothing: it was given")];
  const groups = new Map();
  for (const place of used) {
    const tensor = tensorOf(place);
    if (!groups.has(tensor)) groups.set(tensor, new Set());
    groups.get(tensor).add(place);
  }
  const parts = [];
  for (const [tensor, lit] of groups) {
    const index = state.engine.index([...lit][0]);
    // Only the used indices of the leading axes.
    const fixed = {};
    tensor.axes.slice(0, -2).forEach((axis, n) => {
      const same = [...lit].every((place) => state.engine.index(place)[n] === index[n]);
      if (axis && same) fixed[axis] = index[n];
    });
    parts.push(make("h3", {}, tensor.name), tablesOf(tensor, { fixed, lit }));
  }
  return parts;
};

const choose = (place, { follow = true } = {}) => {
  if (data.panels) return; // a part of the page in a lesson is too small for it
  if (chosen >= 0 && follow && place !== chosen) trail.push(chosen);
  chosen = place;
  showNumber();
  showTensor(tensorOf(place));
  refresh();
  remember();
  if (window.matchMedia("(max-width: 1179px)").matches)
    byId("number").scrollIntoView({ block: "start" });
  byId("name").focus({ preventScroll: true });
};

const goBack = () => {
  const last = trail.pop();
  if (last !== undefined) choose(last, { follow: false });
};

// --- every tensor ---

const showTensors = () => {
  const section = byId("tensors");
  section.hidden = Boolean(data.panels);
  if (data.panels) return;
  const list = make("select", { id: "tensor", "aria-label": message("Tensor") });
  let group = null;
  let path = null;
  const { tensors } = state.engine;
  const given = tensors.filter((tensor) => !tensor.trees);
  for (const tensor of [...tensors.filter((each) => each.trees), ...given]) {
    const dot = tensor.name.lastIndexOf(".");
    const where = !tensor.trees
      ? message("given: words, weights, masks")
      : dot < 0
        ? message("the model")
        : tensor.name.slice(0, dot);
    if (where !== path) {
      group = make("optgroup", { label: where });
      list.append(group);
      path = where;
    }
    group.append(make("option", { value: tensor.name }, tensor.name));
  }
  list.addEventListener("change", () => {
    showTensor(state.engine.byName.get(list.value));
    refresh();
  });
  section.replaceChildren(
    make("h2", {}, message("Every tensor")),
    list,
    make("p", { id: "about", class: "note" }),
    make("div", { id: "cells" }),
  );
  showTensor(
    state.engine.byName.get("memory") ?? tensors.findLast((tensor) => tensor.trees) ?? tensors[0],
  );
};

const showTensor = (tensor) => {
  byId("tensor").value = tensor.name;
  const sizes = tensor.axes.map((axis, n) => `${axis} ${tensor.shape[n]}`.trim()).join(", ");
  const origin = tensor.trees
    ? tensor.code
      ? message("code: {code}", { code: tensor.code })
      : message("computed")
    : tensor.weight
      ? message("a weight")
      : message("given to the run");
  const step = tensor.step ? `; ${message("step {number}", { number: tensor.step })}` : "";
  byId("about").textContent = `(${sizes || message("one number")}) ${origin}${step}`;
  byId("cells").replaceChildren(within("cells", () => tablesOf(tensor)));
};

// --- changes ---

let waiting = false;
const soon = () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    state.follow();
    refresh();
  });
};

// Begin a change: stop animations and leave the "before" view.
const begin = () => {
  learning = false;
  look(false);
  state.begin();
};

// Redraw during a change, such as a drag.
const move = (place, value) => {
  state.engine.put(place, value);
  soon();
};

// A complete change.
const change = (place, value) => {
  begin();
  state.engine.put(place, value);
  state.follow();
  settle();
};

// Change several numbers at once, each to a value or back to its own result.
const changeAll = (changes) => {
  begin();
  for (const [place, value] of changes) {
    if (value === null) state.engine.restore(place);
    else state.engine.put(place, value);
  }
  state.follow();
  settle();
};

// End a change: announce and store it.
const settle = () => {
  refresh();
  remember();
  say();
};

const redraw = (name) => {
  for (const draw of drawn[name]) draw();
};

const refresh = () => {
  limits = new Map();
  Object.keys(drawn).forEach(redraw);
  byId("undo").disabled = !state.past.length;
  byId("reset").disabled = !state.engine.changes().size;
  byId("before").disabled = byId("reset").disabled && !showsBefore;
  foot();
};

let timer = 0;
const remember = () => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (data.panels) return;
    try {
      history.replaceState(null, "", `#${state.address(chosen, stop < 0 ? {} : { tour: stop })}`);
    } catch {
      // A page in a frame may have no URL of its own.
    }
  }, 200);
};

let speaking = 0;
const say = () => {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    const parts = [];
    if (chosen >= 0) parts.push(message("{name} is {value}", { name: spoken(chosen), value: textOf(chosen) }));
    if (state.engine.target >= 0)
      parts.push(
        message("loss {now}, before {before}", {
          now: textOf(state.engine.target),
          before: textOf(state.engine.target, state.before),
        }),
      );
    parts.push(...[...document.querySelectorAll(".verdict")].map((node) => node.textContent));
    byId("said").textContent = parts.join("; ");
  }, 300);
};

// The bar below always shows the model's prediction.
const foot = () => {
  let node = byId("foot");
  if (data.panels || state.engine.target < 0) return node?.remove();
  if (!node) {
    node = make("div", { id: "foot", "aria-hidden": "true" });
    document.body.append(node);
  }
  const verdicts = [...document.querySelectorAll(".verdict")].map((each) =>
    make("span", {}, each.textContent),
  );
  node.replaceChildren(make("b", {}, message("loss {value}", { value: textOf(state.engine.target) })), ...verdicts);
  // If the frame is taller than the screen, the parent page keeps this line visible.
  const said = [...node.children].map((each) => each.textContent);
  if (window.parent !== window) window.parent.postMessage({ said }, "*");
};

// --- dials: drag, type, arrow keys ---

let drag = null;
document.addEventListener("pointerdown", (event) => {
  const node = event.target.closest("input.n");
  if (!node) return;
  drag = {
    node,
    x: event.clientX,
    from: state.engine.values[Number(node.dataset.at)],
    moving: false,
  };
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const far = event.clientX - drag.x;
  if (!drag.moving && Math.abs(far) < 4) return;
  if (!drag.moving) {
    drag.moving = true;
    begin();
    drag.node.setPointerCapture?.(event.pointerId);
  }
  event.preventDefault();
  const step = event.shiftKey ? 0.001 : 0.01;
  move(Number(drag.node.dataset.at), Math.round((drag.from + far * step) * 1000) / 1000);
});
const drop = () => {
  if (!drag) return;
  const { node, moving } = drag;
  drag = null;
  if (moving) settle();
  else if (chosen !== Number(node.dataset.at) && !data.panels && !node.closest("#number")) {
    // A click without a drag: edit the number as text; its name is beside it.
    chosen = Number(node.dataset.at);
    showNumber();
    showTensor(tensorOf(chosen));
    refresh();
    remember();
  }
};
document.addEventListener("pointerup", drop);
document.addEventListener("pointercancel", drop);

const typed = (node) => {
  if (!node.dataset.typing) return;
  delete node.dataset.typing;
  const text = node.value.trim().replace(",", ".");
  const value = Number(text);
  const place = Number(node.dataset.at);
  if (text === "" || !Number.isFinite(value)) {
    notice(
      message("“{text}” is no number; {name} stays {value}.", {
        text: node.value,
        name: elementText(state.engine, place),
        value: textOf(place),
      }),
    );
    refresh();
  } else {
    notice("");
    if (text !== textOf(place)) change(place, value);
  }
};
document.addEventListener("input", (event) => {
  if (event.target.matches("input.n")) event.target.dataset.typing = "true";
});
document.addEventListener("focusout", (event) => {
  if (event.target.matches("input.n")) typed(event.target);
});

const notice = (words) => {
  byId("notice").textContent = words;
};

// --- keys ---

const moveFocus = (node, [down, right]) => {
  const tables = [...node.closest(".tables").querySelectorAll("table")];
  const grid = tables.map((table) =>
    [...table.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll(".n")]),
  );
  const t = tables.indexOf(node.closest("table"));
  const i = grid[t].findIndex((row) => row.includes(node));
  const j = grid[t][i].indexOf(node);
  let next = grid[t][i + down]?.[j + right];
  if (!next && right) next = grid[t + right]?.[i]?.at(right > 0 ? 0 : -1);
  if (!next && down) next = (down > 0 ? grid[t + 1]?.[0] : grid[t - 1]?.at(-1))?.[j];
  if (!next) return;
  node.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
};

document.addEventListener("keydown", (event) => {
  const node = event.target;
  const typing = node.matches("input[type=text], input[type=number], select");
  if (node.matches("input.n")) {
    const turn = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    if (turn) {
      event.preventDefault();
      delete node.dataset.typing;
      if (!event.repeat) begin();
      const place = Number(node.dataset.at);
      const step = event.shiftKey ? 0.01 : 0.1;
      state.put(place, Math.round((state.engine.values[place] + turn * step) * 1000) / 1000);
      settle();
    } else if (event.key === "Enter") typed(node);
    else if (event.key === "Escape") {
      delete node.dataset.typing;
      refresh();
    }
  } else if (node.matches("button.n") && BESIDE[event.key]) {
    event.preventDefault();
    moveFocus(node, BESIDE[event.key]);
  } else if (event.key === "Backspace" && !typing) {
    event.preventDefault();
    goBack();
  } else if (
    event.key.toLowerCase() === "b" &&
    !typing &&
    !event.ctrlKey &&
    !event.metaKey &&
    !event.altKey
  ) {
    if (!event.repeat) look(true);
  } else if (event.key === "z" && (event.ctrlKey || event.metaKey) && !typing) {
    event.preventDefault();
    undo();
  } else if (event.key === "Escape" && stop >= 0) tourTo(-1);
});
document.addEventListener("keyup", (event) => {
  if (event.key.toLowerCase() === "b") look(false);
});

const look = (before) => {
  if (showsBefore === before) return;
  showsBefore = before;
  byId("before").setAttribute("aria-pressed", before);
  refresh();
};

const undo = () => {
  learning = false;
  if (state.undo()) settle();
};

document.addEventListener("click", (event) => {
  const node = event.target.closest("button.n");
  if (!node) return;
  const place = Number(node.dataset.at);
  if (node.dataset.flips) change(place, Number(!state.engine.values[place]));
  else choose(place);
});
byId("undo").addEventListener("click", undo);
byId("reset").addEventListener("click", () => {
  learning = false;
  state.reset();
  settle();
});
byId("before").addEventListener("click", () => look(!showsBefore));

// --- the tour ---

// The models of the course, each identified by a tensor of its own: the lead, the number
// that is explained first, and the stops of the tour.
const MODELS = [
  {
    by: "memory",
    lead: message("A whole Transformer, small enough to touch. It should write each sentence backwards. Drag a number, and everything that depends on it follows."),
    // The sum of a word's number and its position's number.
    first: ["positional_encoding.encoded", [1, 0, 1]],
    tour: [
      [
        "words",
        message("Words become numbers"),
        message("Each word is a row of three numbers in a table. Drag one of dog's numbers and watch everything to the right."),
        "src_embedding.weight",
        [2, 0],
      ],
      [
        "words",
        message("A position is added"),
        message("Two sines and a cosine tell the first word from the second; this sum is what enters the encoder."),
        "positional_encoding.encoded",
        [1, 1, 0],
      ],
      [
        "encoder",
        message("Words look at each other"),
        message("A query times a key is a score. Softmax turns the scores into weights. The padding gets no weight."),
        "encoder.layers.0.self_attention.weights",
        [1, 0, 0, 1],
      ],
      [
        "encoder",
        message("The result is added"),
        message("The weights average the values, and the average is added to the word: nothing is replaced."),
        "encoder.layers.0.self_attention_residual.added",
        [1, 0, 0],
      ],
      [
        "memory",
        message("The memory"),
        message("After the feed-forward network and a last norm, the encoder returns as many numbers as it received."),
        "memory",
        [1, 0, 0],
      ],
      [
        "cross",
        message("The decoder attends to the source"),
        message("Its queries come from the target so far; keys and values come from the memory."),
        "decoder.layers.0.cross_attention.weights",
        [1, 0, 1, 0],
      ],
      [
        "prediction",
        message("One score for each word"),
        message("Softmax turns the logits into probabilities; the arrow marks the right word."),
        "logits",
        [1, 0, 3],
      ],
      [
        "learning",
        message("Learning"),
        message("The loss measures how surprised the model was. Press Learn: each weight moves against its gradient, and nothing else changes."),
        "cross_entropy.loss",
        [],
      ],
    ],
  },
  {
    by: "rotary.turned",
    lead: message("A whole language model, small enough to touch. It should predict the next word. Drag a number, and everything that depends on it follows."),
    // RoPE leaves dog at position 0 unchanged and rotates fish at position 1.
    first: ["rotary.turned", [1, 0, 1, 0]],
    tour: [
      [
        "text",
        message("Words become numbers"),
        message("There is one text and one table. Drag one of dog's numbers: it changes the input, and at the end also the score of dog."),
        "embedding.weight",
        [2, 0],
      ],
      [
        "looking-back",
        message("A position is a rotation"),
        message("No position is added to a word. RoPE rotates the query and the key of fish by 1 radian. It leaves dog, at position 0, unchanged."),
        "rotary.turned",
        [1, 0, 1, 0],
      ],
      [
        "looking-back",
        message("Two query heads share one key head"),
        message("Both heads score the same keys, each with its own queries. Drag this number of dog's key: the weight that fish gives it changes in both heads."),
        "layers.0.self_attention.key_heads",
        [1, 0, 0, 0],
      ],
      [
        "mask",
        message("The mask hides the future"),
        message("The framed entry hides fish from dog. Press it: dog gives part of its weight to the word that it should predict."),
        "mask",
        [1, 0, 0, 1],
      ],
      [
        "looking-back",
        message("Words look back"),
        message("A query times a key is a score. Softmax turns the visible scores into weights. Only these weights tell fish about dog."),
        "layers.0.self_attention.weights",
        [1, 0, 1, 0],
      ],
      [
        "output",
        message("One stack, no memory"),
        message("The attention output is added, then the output of the gated network. A last norm ends the stack. There is no second text."),
        "decoder_output",
        [1, 0, 0],
      ],
      [
        "prediction",
        message("The table again"),
        message("The score of a word is the dot product with its row of the table. The row of <pad> is zero, so its score stays 0, whatever you drag elsewhere."),
        "logits",
        [1, 0, 3],
      ],
      [
        "learning",
        message("Learning"),
        message("This text has one label: the word after dog. Press Learn. In a longer text every position predicts its next word at the same time."),
        "cross_entropy.loss",
        [],
      ],
    ],
  },
];
const model = () => MODELS.find(({ by }) => has(by) && has("cross_entropy.loss"));
const tour = () => model()?.tour ?? [];

const tourTo = (number) => {
  for (const part of document.querySelectorAll("section.lit")) part.classList.remove("lit");
  const stops = tour();
  stop = number >= 0 && number < stops.length ? number : -1;
  byId("tour").hidden = stop < 0;
  if (stop >= 0) {
    const [part, title, sentence, name, index] = stops[stop];
    byId("tour-where").textContent = message("{number} of {count}: {title}.", {
      number: stop + 1,
      count: stops.length,
      title,
    });
    byId("tour-text").textContent = sentence;
    byId("tour-back").disabled = stop === 0;
    byId("tour-next").textContent = stop === stops.length - 1 ? message("The end") : message("Next");
    if (has(name)) {
      chosen = at(name, ...index);
      trail = [];
      showNumber();
      showTensor(tensorOf(chosen));
    }
    const lit = byId(part);
    lit?.classList.add("lit");
    lit?.scrollIntoView({ block: "center" });
    byId("tour-next").focus({ preventScroll: true });
  } else byId("tour-open").focus({ preventScroll: true });
  refresh();
  remember();
};
byId("tour-open").addEventListener("click", () => tourTo(0));
byId("tour-next").addEventListener("click", () => tourTo(stop + 1));
byId("tour-back").addEventListener("click", () => tourTo(stop - 1));
byId("tour-close").addEventListener("click", () => tourTo(-1));

// --- start ---

// Translate the fixed texts of page.html.
const translatePage = () => {
  const texts = document.createTreeWalker(document.querySelector("body"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const fixed = !text.parentElement.closest("script, noscript") && text.data.trim();
    if (fixed) text.data = text.data.replace(fixed, () => message(fixed));
  }
  for (const name of ["aria-label", "title"]) {
    for (const node of document.querySelectorAll(`[${name}]`)) {
      node.setAttribute(name, message(node.getAttribute(name)));
    }
  }
  document.title = message(document.title);
};

const build = () => {
  const lead = (data.lead && message(data.lead)) ?? model()?.lead;
  byId("lead").hidden = !lead;
  byId("lead").textContent = lead ?? "";
  byId("tour-open").hidden = Boolean(data.panels) || !model();
  drawn.words = [];
  within("walk", walk);
  showTensors();
  showNumber();
  refresh();
};

const shadow = () => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paint = (wanted) => {
    document.documentElement.dataset.theme = wanted ?? (dark.matches ? "dark" : "light");
  };
  dark.addEventListener("change", () => paint());
  // The book tells the page in its frame which theme the reader chose.
  window.addEventListener("message", (event) => {
    if (event.source === window.parent && ["dark", "light"].includes(event.data?.theme))
      paint(event.data.theme);
  });
  paint();
  if (window.parent === window) return;
  document.body.classList.add("framed");
  new ResizeObserver(() => {
    const { bottom } = document.body.getBoundingClientRect();
    window.parent.postMessage({ height: bottom + scrollY + 8 }, "*");
  }).observe(document.body);
};

const firstPlace = () => {
  const [name, index] = model()?.first ?? [];
  const tensor = state.engine.byName.get(name);
  return tensor && index.every((i, axis) => i < tensor.shape[axis]) ? at(name, ...index) : -1;
};

const open = () => {
  const [place, unknown] = state.open(location.hash.slice(1));
  chosen = place < 0 ? firstPlace() : place;
  if (data.panels) chosen = -1;
  trail = [];
  notice(
    unknown.length
      ? message("The address names what this page does not have; it was left out: {names}.", {
          names: unknown.join(", "),
        })
      : "",
  );
  byId("runs").value = state.number;
  byId("with").value = state.with;
  build();
  const stopped = Number(new URLSearchParams(location.hash.slice(1)).get("tour") ?? -1);
  if (stopped >= 0 && stopped < tour().length && !data.panels) tourTo(stopped);
};

const offerRuns = (id) => {
  for (const [number, run] of data.runs.entries())
    byId(id).append(make("option", { value: number }, run.title));
};
offerRuns("runs");
byId("with").append(make("option", { value: -1 }, message("nothing")));
offerRuns("with");
for (const id of ["runs", "with"]) byId(id).parentElement.hidden = data.runs.length < 2;
byId("runs").addEventListener("change", () => {
  learning = false;
  const before = model();
  const name = chosen >= 0 ? tensorOf(chosen).name : "";
  const index = chosen >= 0 ? state.engine.index(chosen) : [];
  state.choose(Number(byId("runs").value));
  try {
    chosen = name ? state.engine.place(name, index) : -1;
  } catch {
    chosen = -1;
  }
  trail = [];
  notice(
    state.missing.length
      ? message("This model has no {names}; what was changed there is left out.", {
          names: state.missing.join(", "),
        })
      : "",
  );
  build();
  if (stop >= 0 && model() !== before) {
    tourTo(-1); // the other model has its own tour
    byId("runs").focus();
  }
  settle();
});
byId("with").addEventListener("change", () => {
  state.compare(Number(byId("with").value));
  settle();
});
if (data.panels) {
  document.body.classList.add("part");
  document.querySelector("h1").textContent = message(data.title);
}
shadow();
translatePage();
open();
window.addEventListener("hashchange", open);

// For tests and experiments: names and indices as in the Python trace.
window.twelve = {
  get: (name, index = []) => state.engine.values[state.engine.place(name, index)],
  set: (name, index, value) => {
    if (typeof value !== "number" || Number.isNaN(value))
      throw new TypeError(`${name} takes a number, not ${value}`);
    const place = state.engine.place(name, index);
    if (!state.engine.takes(place, value))
      throw new RangeError(
        `${name} cannot hold ${value}: a mask takes 0 and 1, ids the rows of their tables`,
      );
    change(place, value);
  },
  grad: (name, index = []) => state.engine.gradients[state.engine.place(name, index)],
  loss: () => (state.engine.target < 0 ? NaN : state.engine.values[state.engine.target]),
  reset: () => {
    state.reset();
    settle();
  },
};
document.body.dataset.ready = "true";
