// Scrolls a reader who comes from the search to the match: to the first element that contains the
// words as one phrase, else most of them. The search page stores the words in the session.
const TERMS = "sphinx_highlight_terms";
const terms = () => {
  try {
    return localStorage.getItem(TERMS) || "";
  } catch {
    return ""; // storage may be disabled
  }
};
const words = terms().split(/\s+/).filter(Boolean);

function score(piece) {
  const text = piece.textContent.toLowerCase();
  const held = words.filter((word) => text.includes(word)).length;
  return text.includes(words.join(" ")) ? held + words.length : held;
}

addEventListener("load", async () => {
  if (!words.length || document.getElementById("search-results")) return;
  localStorage.removeItem(TERMS);
  if (location.hash) return;
  await window.MathJax?.startup.promise; // equations that are not typeset yet would move the text
  const pieces = [...document.querySelectorAll("article :is(h1, h2, h3, h4, p, li, td, dt, pre)")];
  const scores = pieces.map(score);
  const piece = pieces[scores.indexOf(Math.max(...scores))];
  for (let fold = piece.closest("details"); fold; fold = fold.parentElement.closest("details")) {
    fold.open = true;
  }
  piece.classList.add("found");
  piece.scrollIntoView({ block: "center" });
});
