// Texts made by scripts. The English text is the key; the page brings the reader's language in JSON blocks
// (`texts-frame` of base.html, `texts-page` of the view). t("%(n)s min", { n: 4 }) fills the named places.

const texts = {};
for (const id of ["texts-frame", "texts-page"]) {
  const block = document.getElementById(id);
  if (block) Object.assign(texts, JSON.parse(block.textContent));
}

export function t(key, values = {}) {
  return (texts[key] ?? key).replace(/%\((\w+)\)s/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

// "12 s", "4 min", "3 h", "2 d": the same words as console/templatetags/frame.py makes.
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "—";
  const s = Math.max(0, Math.round(seconds));
  if (s < 90) return t("%(n)s s", { n: s });
  if (s < 90 * 60) return t("%(n)s min", { n: Math.round(s / 60) });
  if (s < 36 * 3600) return t("%(n)s h", { n: Math.round(s / 3600) });
  return t("%(n)s d", { n: Math.round(s / 86400) });
}

export const ago = (seconds) => t("%(span)s ago", { span: span(seconds) });

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const figure = (value) => (value === null || value === undefined ? "—" : plain.format(value));

// Elements, and shapes of the sprite; text enters as text only.
export function element(tag, className = "", text = undefined) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function shape(name, className = "") {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS(svg.namespaceURI, "use");
  svg.setAttribute("aria-hidden", "true");
  if (className) svg.setAttribute("class", className);
  use.setAttribute("href", `${document.body.dataset.icons}#${name}`);
  svg.append(use);
  return svg;
}
