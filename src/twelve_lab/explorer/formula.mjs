// The formula of the chosen number, inside its station; each factor is a button.
import { byId, choose, make, onChoose, onDraw, shown, view } from "./core.mjs";
import { cellsOf } from "./map.mjs";
import { spoken, textOf } from "./names.mjs";
import { formula } from "./writer.mjs";

const node = make("div", { id: "formula", role: "group" });

const factor = (place) => {
  const part = make("button", { type: "button", class: "factor", title: spoken(place), "data-place": place }, textOf(place));
  part.addEventListener("click", () => choose(place));
  return part;
};

// The number that a copy comes from: a copy has no arithmetic of its own.
const origin = (place) => {
  const parts = formula(shown(), place);
  return parts.length === 3 && !parts[0] && !parts[2] ? origin(parts[1]) : place;
};

let last = "";
const write = () => {
  if (view.chosen < 0) return;
  const parts = formula(shown(), origin(view.chosen));
  const text = `${view.chosen} ${parts.map((part) => (typeof part === "number" ? textOf(part) + spoken(part) : part)).join("|")}`;
  if (text === last) return;
  last = text;
  const written = parts.map((part) => (typeof part === "number" ? factor(part) : part));
  const result = parts.length > 1 ? [make("b", {}, textOf(view.chosen)), " = "] : [];
  node.setAttribute("aria-label", spoken(view.chosen));
  node.replaceChildren(...result, ...written);
};
onDraw(write);

// Place the formula below the numbers of the open station, or in the sheet on a narrow screen.
export const placeFormula = () => {
  const [cell] = view.chosen < 0 ? [] : cellsOf(view.chosen);
  const station = cell?.closest(".open");
  if (view.chosen < 0) node.remove();
  else if (station) [...station.children].find((part) => part.contains(cell)).after(node);
  else byId("about-formula")?.append(node);
};
onChoose(() => {
  last = "";
  placeFormula();
});
