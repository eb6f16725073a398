// The texts of the page: English templates, translated by an embedded table if there is one.
let translations = {};

export const translate = (table) => {
  translations = table ?? {};
};

// A template is a whole text with named fields, as in twelve_lab.messages.message.
export const message = (template, values = {}) =>
  (translations[template] ?? template).replace(/\{(\w+)\}/g, (_, name) => values[name]);
