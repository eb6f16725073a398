import js from "@eslint/js";
import globals from "globals";

// The bundle is built from the modules beside it.
export default [
  { ignores: ["**/bundle.js", "build/**", ".venv/**"] },
  js.configs.recommended,
  { languageOptions: { globals: { ...globals.browser, ...globals.node } } },
  {
    files: ["book/static/*.js", "slides/*.js"],
    languageOptions: {
      globals: Object.fromEntries(
        ["MathJax", "Reveal", "RevealNotes", "Scorer", "Search"].map((name) => [name, "readonly"]),
      ),
    },
  },
];
