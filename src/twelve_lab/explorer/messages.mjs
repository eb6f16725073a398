// The texts of the page: English templates, which an embedded table may translate.
let translations = {};

export const translate = (table) => {
  translations = table ?? {};
};

// A template is a whole text with named fields, as twelve_lab.messages.message takes it.
export const message = (template, values = {}) =>
  (translations[template] ?? template).replace(/\{(\w+)\}/g, (_, name) => values[name]);
