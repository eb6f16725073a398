// Eight dares. Each has a sentence, an element to start at, a test on window.twelve and a lesson.
// A dare with `fresh` needs the model in its initial state.
import { at, button, byId, choose, data, has, make, onSettle, reset, state, svg } from "./core.mjs";
import { message } from "./messages.mjs";
import { cellsOf } from "./map.mjs";

const KEY = "twelve-numbers-dares";
const CROSS = "decoder.layers.0.cross_attention.weights";
const number = (name, ...index) => () => (has(name) ? [...cellsOf(at(name, ...index))] : []);
const control = (selector) => () => [...document.querySelectorAll(selector)];
const alone = (twelve) => twelve.steps() === 0 && twelve.changes().length === 1 && twelve.changes()[0].type === "float";
const allRight = (says) => says.flat().every(({ graded, right }) => !graded || right);

const DARES = [
  {
    id: "say",
    text: message("Make it say fish first with one number."),
    fresh: true,
    where: number("logits", 1, 0, 3),
    done: (twelve) => alone(twelve) && twelve.says()[1][0].word === "fish",
    lesson: "12",
  },
  {
    id: "nothing",
    text: message("Find a number that changes nothing at all."),
    fresh: true,
    where: control("button.sentence"),
    done: (twelve) => alone(twelve) && twelve.moved("logits") === 0,
    lesson: "05",
  },
  {
    id: "hide",
    text: message("Hide fish, so that nobody looks at it."),
    where: number("src_mask", 1, 0, 0, 1),
    done: (twelve) => has(CROSS) && twelve.get("src", [1, 1]) === 3 && twelve.get(CROSS, [1, 0, 0, 1]) === 0,
    lesson: "05",
  },
  {
    id: "teach",
    text: message("Teach it until every word is right."),
    where: control("#stage .teach"),
    done: (twelve) => twelve.steps() > 0 && allRight(twelve.says()),
    lesson: "13",
  },
  {
    id: "fast",
    text: message("Teach it in under 40 steps: loss below 0.05."),
    fresh: true,
    where: control(".rate"),
    done: (twelve) => twelve.steps() > 0 && twelve.steps() < 40 && twelve.loss() <= 0.05,
    lesson: "13",
  },
  {
    id: "leap",
    text: message("Take one step at learning rate 1. Why the leap?"),
    where: control(".rate"),
    done: (twelve) => twelve.actions().some(({ rate }) => rate >= 1) && twelve.losses().some((loss, n, all) => n && loss > all[n - 1]),
    lesson: "13",
  },
  {
    id: "unteach",
    text: message("Teach it, then unteach it by one weight."),
    where: control("#stage .teach"),
    done: (twelve) => {
      const [before, last] = twelve.actions().slice(-2);
      return Boolean(before?.rate && last?.name) && allRight(twelve.said()) && !allRight(twelve.says());
    },
    lesson: "01",
  },
  {
    id: "norm",
    text: message("Choose the post-norm model. What moves?"),
    where: control("#runs"),
    done: (twelve) => twelve.model() === "post-norm",
    lesson: "08",
  },
];

const stored = () => {
  try {
    return new Set(JSON.parse(localStorage.getItem(KEY)) ?? []);
  } catch {
    return new Set();
  }
};
const done = stored();
let latest = "";

const lessonOf = ({ lesson }) => {
  const { title, href } = data.lessons?.[lesson] ?? {};
  if (!title) return "";
  return make("span", {}, " ", message("Why?"), " ", href ? make("a", { href }, title) : title);
};
const happy = () => svg("svg", { class: "face happy", "aria-hidden": "true" }, svg("use", { href: "#face-happy" }));

const start = (dare) => {
  if (dare.fresh && state.actions.length) reset();
  const [node] = dare.where();
  if (!node) return;
  node.scrollIntoView({ block: "nearest" });
  node.focus({ preventScroll: true });
  if (node.matches("button.n:not([aria-pressed])")) choose(Number(node.dataset.at));
};

const fits = () => data.lessons && state.engine.target >= 0 && (has("memory") || has("rotary.turned"));

let current;
// Show the button "Start fresh" if the current dare needs it.
const offer = () => {
  const again = document.querySelector("#dares .again");
  if (again) again.hidden = !current.fresh || !state.actions.length;
};

export const buildDares = () => {
  const panel = byId("dares");
  panel.hidden = !fits();
  if (panel.hidden) return;
  current = DARES.find(({ id }) => !done.has(id));
  const items = DARES.map((dare) => {
    const isDone = done.has(dare.id);
    return make("li", { class: `${isDone ? "done" : ""} ${dare === current ? "current" : ""} ${dare.id === latest ? "latest" : ""}`, id: `dare-${dare.id}` },
      isDone ? happy() : make("span", { class: "ring", "aria-hidden": "true" }),
      make("span", {}, button(dare.text, () => start(dare)), isDone ? make("span", { class: "unseen" }, message("done")) : null,
        isDone ? lessonOf(dare) : null),
      dare === current ? button(message("Start fresh"), () => start(dare), { class: "again" }) : null);
  });
  const title = message("{count} of {total} dares", { count: done.size, total: DARES.length });
  panel.replaceChildren(make("h2", {}, title), make("ol", {}, ...items));
  offer();
};

onSettle(() => {
  if (!fits() || !window.twelve) return;
  offer();
  const found = DARES.find((dare) => !done.has(dare.id) && dare.done(window.twelve));
  if (!found) return;
  done.add(found.id);
  latest = found.id;
  byId("cheer").textContent = message("Done: {dare}", { dare: found.text });
  try {
    localStorage.setItem(KEY, JSON.stringify([...done]));
  } catch {
    // Without storage, completed dares are forgotten when the page is closed.
  }
  buildDares();
});
