// The map: the stations of each lane, with weights above and the stream of words below.
import { at, byId, data, has, isWide, make, named, onChoose, onDraw, shown, state, view } from "./core.mjs";
import { cell, tableOf, tablesOf } from "./cells.mjs";
import { message } from "./messages.mjs";
import { lossCell, scores, speaks, wordChoice } from "./output.mjs";

const LANES = [
  { side: "src", prefix: "encoder.", table: "src_embedding.weight", input: "src_input", out: "memory", title: message("memory") },
  { side: "tgt", prefix: "decoder.", table: "tgt_embedding.weight", input: "tgt_input", out: "decoder_output", title: message("decoder output") },
  { side: "ids", prefix: "", table: "embedding.weight", input: "embedded", out: "decoder_output", title: message("decoder output") },
];
const TITLES = {
  src: message("Encoder reads"),
  tgt: message("Decoder writes"),
  ids: message("Words"),
  self_attention: message("Self-attention"),
  cross_attention: message("Cross-attention"),
  feed_forward: message("Feed-forward"),
  next: message("Next word"),
};
const MATRICES = ["w_q", "w_k", "w_v", "w_o", "gate", "up", "down"];

const block = (title, ...tables) =>
  make("div", {}, title ? make("h4", {}, title) : null, make("div", { class: "row" }, ...tables));

// The slice of a tensor that belongs to the sentence in front.
const front = (tensor, ...lead) => {
  const index = tensor.shape.map((_, axis) => lead[axis] ?? 0);
  const batch = tensor.axes.indexOf("batch");
  if (batch >= 0) index[batch] = Math.min(view.front, tensor.shape[batch] - 1);
  return at(tensor.name, ...index);
};

// The words with their rows of the embedding table, and whether each may be attended to.
const tokens = ({ side, table }) => {
  const ids = named(side);
  const weights = named(table);
  const mask = { src: named("src_mask"), ids: named("key_mask") }[side];
  const body = make("tbody");
  for (let position = 0; position < ids.shape[1]; position++) {
    const place = front(ids, 0, position);
    const label = message("word {position}", { position: position + 1 });
    const row = make("tr", {}, make("th", { scope: "row", class: "choice" },
      data.vocab ? wordChoice(place, side, position, label) : cell(place)));
    for (let d = 0; d < weights.shape[1]; d++) {
      row.append(make("td", {}, cell(weights.start)));
      onDraw(() => {
        const start = weights.start + shown().values[place] * weights.shape[1];
        row.cells[d + 1].firstElementChild.dataset.at = start + d;
      });
    }
    if (mask) row.append(make("td", { class: "seen" }, cell(front(mask) + position)));
    body.append(row);
  }
  const titles = [make("th", {}, ""), make("th", { colspan: weights.shape[1], class: "title" }, message("table")),
    mask ? make("th", { class: "title" }, message("seen")) : null];
  return make("table", { class: "tokens" }, make("thead", {}, make("tr", {}, ...titles)), body);
};

const mask = (name) =>
  named(name)?.type === "bool"
    ? block(message("may look"), tableOf(named(name), front(named(name)), { faces: true }))
    : null;

// The tensor that leaves a station: the sum in pre-norm, the output of the norm in post-norm.
const stream = (layer, lane, isLast) => {
  if (isLast && has(lane.out)) return lane.out;
  const [added, normed] = [`${layer}_residual.added`, `${layer}_residual.norm.output`];
  return has(normed) && named(normed).start > named(added).start ? normed : added;
};

const matrices = (names, mask = null) => {
  const found = names.filter((name) => named(name)?.shape.length === 2);
  const blocks = found.map((name) =>
    block(name.split(".").at(-2), tableOf(named(name), named(name).start, { rowWords: false })));
  return make("div", { class: "above" }, make("div", { class: "weights" }, ...blocks), mask);
};

const rowsOf = (title, name, kind = "") =>
  has(name) && named(name).shape.length >= 2
    ? make("div", { class: kind }, block(title, tableOf(named(name), front(named(name)))))
    : null;

// The stations of a lane: [id, title, contents].
const stations = (lane) => {
  const found = [];
  if (has(lane.side) && has(lane.table)) {
    found.push([lane.side, TITLES[lane.side], [
      tokens(lane),
      rowsOf(message("+ position"), lane.side === "tgt" ? "positional_encoding#2.positions" : "positional_encoding.positions"),
      rowsOf(message("= x"), lane.input, "stream"),
    ]]);
  }
  for (let n = 0; has(`${lane.prefix}layers.${n}.feed_forward.output`); n++) {
    const isLast = !has(`${lane.prefix}layers.${n + 1}.feed_forward.output`);
    for (const kind of ["self_attention", "cross_attention", "feed_forward"]) {
      const layer = `${lane.prefix}layers.${n}.${kind}`;
      if (!has(`${layer}.output`)) continue;
      const attention = named(`${layer}.weights`);
      const heads = attention ? Array.from({ length: attention.shape[1] }, (_, head) => head) : [];
      const inner = ["activated", "gated"].map((name) => `${layer}.${name}`).find(has);
      const out = stream(layer, lane, isLast && kind === "feed_forward");
      const title = out === lane.out ? lane.title : message("x + {sublayer}", { sublayer: kind.replace("_", "-") });
      const masked = kind === "self_attention" && mask({ tgt: "tgt_mask", ids: "mask" }[lane.side]);
      found.push([`${lane.prefix || "lane."}${n}.${kind}`, TITLES[kind], [
        matrices(MATRICES.map((name) => `${layer}.${name}.weight`), masked || null),
        attention ? make("div", { class: "heads" }, block("", ...heads.map((head) =>
          tableOf(attention, front(attention, 0, head), { title: message("head {number}", { number: head }), rowWords: !head, faces: true })))) : null,
        inner ? rowsOf(message("inside"), inner) : null,
        rowsOf(title, out, "stream"),
      ], { attention, from: kind === "cross_attention" ? "memory" : null, out }]);
    }
  }
  if (found.length && lane.side !== "src" && speaks()) {
    found.push(["next", TITLES.next, [
      make("div", { class: "sides" }, matrices(["output_projection.weight"]),
        scores(Math.min(view.front, named("logits").shape[0] - 1))),
      state.engine.target < 0 ? null : lossCell(),
    ]]);
  }
  return found;
};

// One section per tensor, with the code that computes it.
const each = (tensors) =>
  tensors.map((tensor) => make("section", { class: "station", "aria-label": tensor.name },
    make("h3", {}, tensor.name), tensor.code ? make("code", { class: "note" }, tensor.code) : null, tablesOf(tensor)));

// Build the list of all tensors when the reader opens it.
export const buildTensors = () => {
  const holder = byId("tensors");
  holder.querySelector("div")?.remove();
  if (holder.open) holder.append(make("div", { class: "loose open" }, ...each(state.engine.tensors)));
};

// Build the map; return the attention layers with the stations whose rows they connect.
export const buildMap = () => {
  const map = byId("map");
  const arcs = [];
  let [row, columns, first] = [0, 1, 0];
  const nodes = [];
  for (const lane of LANES) {
    const found = stations(lane);
    if (!found.length) continue;
    row += 1;
    let before = null;
    found.forEach(([id, title, contents, attention], n) => {
      const node = make("section", { class: `station tables ${id.split(".").at(-1)}`, id, "aria-label": title, style: `--row: ${row}; --column: ${n + 1}` },
        make("h3", {}, title), ...contents.filter(Boolean));
      node.dataset.order = nodes.length;
      node.dataset.out = attention?.out ?? "";
      if (attention?.attention) arcs.push({ ...attention, before, node });
      before = node;
      nodes.push(node);
    });
    if (row === 1) first = found.length;
    columns = Math.max(columns, found.length);
  }
  if (!row) nodes.push(...each(state.engine.tensors.filter(({ trees }) => trees))); // no Transformer
  map.classList.toggle("loose", !row);
  map.classList.toggle("single", row === 1);
  map.classList.toggle("sheets", named("logits")?.shape[0] > 1);
  map.style.setProperty("--columns", columns);
  map.style.setProperty("--lanes", row);
  map.style.setProperty("--free", first + 1);
  byId("stations").replaceChildren(...nodes);
  layout();
  return arcs;
};

export const cellsOf = (place) => document.querySelectorAll(`#map .n[data-at="${place}"]`);

// Open the station of the chosen number, and shrink the others. If no number is chosen, shrink all
// stations if a lane is long. On a narrow screen, all stations are always small.
const ROOM = 5; // a lane with more stations is long
const layout = () => {
  if (data.panels) return;
  const [node] = view.chosen < 0 ? [] : cellsOf(view.chosen);
  const station = node?.closest(".station");
  const isCrowded = Boolean(station) || Number(byId("map").style.getPropertyValue("--columns")) > ROOM;
  for (const each of document.querySelectorAll("#stations .station")) {
    each.classList.toggle("picked", each === station);
    each.classList.toggle("open", each === station && isWide());
    each.classList.toggle("small", !isWide() || (isCrowded && each !== station));
  }
};
onChoose(layout);
