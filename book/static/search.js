// Sorts the search results: lessons, then workshops, the reference last. Each result shows the
// paragraph that contains the words.
const FIRST = [
  [/^notebooks\/\d/, 4],
  [/^notebooks\//, 2],
  [/^docs\//, 1],
];
const SHORTEST = 30;
const LONGEST = 240;
const UNSAID = "pre, script, style, nav, .headerlink, .math, .MathJax, iframe";

// Chinese has no spaces: take from the left the longest words that the index knows.
const HAN = /\p{Script=Han}/u;
function cut(run) {
  if (!HAN.test(run)) return [run];
  const { terms, titleterms } = Search._index;
  const known = (word) => Object.hasOwn(terms, word) || Object.hasOwn(titleterms, word);
  const words = [];
  for (let start = 0, end; start < run.length; start = end) {
    end = run.length;
    while (end > start + 1 && !known(run.slice(start, end).toLowerCase())) end -= 1;
    if (end > start + 1) words.push(run.slice(start, end));
  }
  return words.length ? words : [run];
}
// Sphinx takes its own function where there is none yet.
globalThis.splitQuery = (query) => (query.match(/[\p{L}\p{N}_]+/gu) ?? []).flatMap(cut);

function paragraphs(html, anchor) {
  const page = new DOMParser().parseFromString(html, "text/html");
  const place = (anchor && page.querySelector(`article ${anchor}`)) || page.querySelector("article");
  // Search results show equations as TeX, so prefer a paragraph without an equation.
  const all = [...(place?.querySelectorAll("p, li, td, dd") ?? [])].filter(
    (each) => !each.querySelector("p, li, .download") && each.textContent.length > SHORTEST,
  );
  const plain = (each) => !each.querySelector(".math");
  return [...all.filter(plain), ...all.filter((each) => !plain(each))].map((each) => {
    for (const part of each.querySelectorAll(UNSAID)) part.replaceWith(" … ");
    return each.textContent.replace(/\s+/g, " ").trim();
  });
}

document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  Scorer.score = ([page, , , , score, , kind]) =>
    score * (kind === "object" ? 0.5 : (FIRST.find(([path]) => path.test(page))?.[1] ?? 0.5));
  Search.makeSearchSummary = (html, words, anchor) => {
    const held = (text) => [...words].filter((word) => text.toLowerCase().includes(word)).length;
    const [best = ""] = paragraphs(html, anchor).sort((one, other) => held(other) - held(one));
    if (!best) return null;
    const cut = best.length > LONGEST ? `${best.slice(0, LONGEST).replace(/\s\S{0,20}$/, "")} …` : best;
    const shown = document.createElement("p");
    shown.className = "context";
    shown.textContent = cut;
    return shown;
  };
});
