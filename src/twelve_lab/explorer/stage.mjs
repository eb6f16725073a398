// The bar that stays on the screen: sentence, prediction, loss and main buttons.
import { button, byId, data, isStill, look, make, named, onDraw, reset, shown, state, undo, view } from "./core.mjs";
import { message } from "./messages.mjs";
import { faceOf, wordOf } from "./names.mjs";
import { blindGuess, curve, idsOf, speaks, teachButton, teachTools, verdict, written } from "./output.mjs";

const FLIP = 500; // milliseconds until the predicted word follows a drag

const sentence = (batch) =>
  idsOf(batch).filter((id) => id !== 0 || batch === view.front).map((id, n) => wordOf(id, "src", n));

const spelled = (word) => make("span", { class: "spelled" }, faceOf(word), word);

const answer = (each) => {
  const kind = each.graded ? (each.right ? "right" : "wrong") : "";
  const sign = { right: "✓", wrong: "✗" }[kind] ?? "";
  return make("span", { class: `answer ${kind}`, title: verdict(each) }, spelled(each.word), make("span", { class: "sign" }, sign));
};

// A sentence and the predicted words with their marks. A sentence in the background is a button.
const line = (batch, act) => {
  const isFront = batch === view.front;
  const read = make("span", { class: "read" });
  const said = make("span", { class: "said" });
  const parts = [read, make("span", { class: "to" }, "→"), said];
  const node = make(isFront ? "p" : "button", { class: "sentence", type: isFront ? null : "button" }, ...parts);
  if (!isFront) node.addEventListener("click", () => act(batch));
  let timer = 0;
  let last = "";
  const show = (flips) => {
    const answers = written(batch).filter(({ graded }) => graded || isFront);
    said.replaceChildren(...answers.map(answer));
    last = written(batch).map(({ word }) => word).join();
    if (flips) said.classList.add("flipped");
  };
  said.addEventListener("animationend", () => said.classList.remove("flipped"));
  onDraw(() => {
    read.replaceChildren(...sentence(batch).map(spelled));
    clearTimeout(timer);
    const flips = last && last !== written(batch).map(({ word }) => word).join();
    // During a drag, the pulse first passes through the stations.
    if (flips && view.dragged >= 0 && !isStill()) timer = setTimeout(show, FLIP, true);
    else show(flips);
  });
  return node;
};

const undoButton = () => {
  const node = button(message("Undo"), undo);
  onDraw(() => {
    node.disabled = !state.past.length;
  });
  return node;
};

export const buildStage = ({ front, copy }) => {
  const { target } = state.engine;
  const parts = [];
  if (speaks()) {
    const count = named("logits").shape[0];
    const batches = [view.front, ...Array.from({ length: count }, (_, n) => n).filter((n) => n !== view.front)];
    parts.push(make("div", { class: "sentences" }, ...batches.slice(0, 3).map((batch) => line(batch, front))));
  }
  if (target >= 0) {
    const loss = make("b");
    onDraw(() => {
      const value = shown().values[target];
      loss.textContent = Number.isFinite(value) ? value.toFixed(4) : String(value);
    });
    parts.push(make("div", { class: "loss" }, make("span", {}, message("loss")), loss,
      make("span", { class: "spark" }, data.vocab ? blindGuess() : null, curve({ "aria-hidden": "true" }))));
  }
  parts.push(make("div", { class: "acts" }, target >= 0 ? teachButton() : null, undoButton(), button(message("Copy link"), copy)));
  byId("stage").replaceChildren(...parts);
};

// The controls that are used less often; a live part of a lesson has some of them.
export const buildTools = (save) => {
  const again = button(message("Start again"), reset);
  const before = button(message("Show before (hold B)"), () => look(!view.before));
  onDraw(() => {
    again.disabled = !state.actions.length;
    before.setAttribute("aria-pressed", view.before);
    const { number, values } = state.before;
    before.disabled = number !== state.number || values.every((value, i) => Object.is(value, state.engine.values[i]));
  });
  if (data.panels) return [undoButton(), again, before];
  return [...(state.engine.target < 0 ? [] : teachTools()), again, before, button(message("Save picture"), save, { id: "picture" })];
};
