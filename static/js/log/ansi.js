// Terminal colours in log text. Text of a server is hostile: it enters the page as text nodes, colours as classes or
// through CSSOM, and every other escape sequence is dropped.

const ESCAPES = new RegExp([
  "\\x1b\\[([0-9;:]*)m",                                             // colours and weights
  "\\x1b\\[[0-?]*[ -/]*[@-~]",                                       // other CSI: cursor, erase
  "\\x1b\\][^\\x07\\x1b\\u2407\\ufffd]*(?:\\x07|\\x1b\\\\|[\\u2407\\ufffd])",  // OSC: titles, links
  "\\x1b[PX^_][^\\x1b]*\\x1b\\\\",                                   // DCS and its like
  "\\x1b[ -/]*[0-~]?",                                               // what is left
].join("|"), "g");

// Control characters, and those that turn the reading direction, hide, or break lines: shown, not obeyed.
const HIDDEN = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export const visible = (text) => text.replace(HIDDEN, (char) => {
  const code = char.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "\u2421" : `⟨${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
});

// The text as it reads, without its escapes.
export const plain = (text) => visible(text.includes("\x1b") ? text.replace(ESCAPES, "") : text);

// [{ text, style }] of one line; `style` is null where nothing is set. The style goes on from `start`.
export function runs(text, start = null) {
  const found = [];
  let style = start, from = 0;
  for (const match of text.matchAll(ESCAPES)) {
    if (match.index > from) found.push({ text: visible(text.slice(from, match.index)), style });
    from = match.index + match[0].length;
    if (match[1] !== undefined) style = changed(style, match[1]);
  }
  if (from < text.length) found.push({ text: visible(text.slice(from)), style });
  return { found, style };
}

const FLAGS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["strike"], 39: ["fg"], 49: ["bg"] };

function changed(style, codes) {
  const next = { ...style };
  const list = codes.split(/[;:]/).map(Number);
  for (let i = 0; i < list.length; i += 1) {
    const code = list[i];
    if (code === 0) Object.keys(next).forEach((key) => delete next[key]);
    else if (FLAGS[code]) next[FLAGS[code]] = true;
    else if (ENDS[code]) ENDS[code].forEach((key) => delete next[key]);
    else if (code >= 30 && code <= 37) next.fg = code - 30;
    else if (code >= 90 && code <= 97) next.fg = code - 82;
    else if (code >= 40 && code <= 47) next.bg = code - 40;
    else if (code >= 100 && code <= 107) next.bg = code - 92;
    else if (code === 38 || code === 48) i = extended(next, code === 38 ? "fg" : "bg", list, i);
  }
  return Object.keys(next).length ? next : null;
}

// 38;5;n and 38;2;r;g;b; the place of the last number read.
function extended(style, key, list, i) {
  const byte = (value) => (value >= 0 && value <= 255 ? value : 0);
  if (list[i + 1] === 5) { style[key] = byte(list[i + 2]); return i + 2; }
  if (list[i + 1] === 2) { style[key] = [byte(list[i + 2]), byte(list[i + 3]), byte(list[i + 4])]; return i + 4; }
  return list.length;
}

const LEVELS = [0, 95, 135, 175, 215, 255];

// 16 … 255 of the 256 colours as [r, g, b].
export function rgb(color) {
  if (Array.isArray(color)) return color;
  if (color >= 232) return Array(3).fill(8 + 10 * (color - 232));
  const cube = color - 16;
  return [LEVELS[Math.floor(cube / 36)], LEVELS[Math.floor(cube / 6) % 6], LEVELS[cube % 6]];
}

// Puts a line into `node`. The first 16 colours are roles of the theme; of the others log.css keeps the hue and
// moves the lightness until it can be read.
export function paint(node, text, start = null) {
  for (const run of runs(text, start).found) {
    if (!run.style) { node.append(run.text); continue; }
    const span = document.createElement("span");
    span.textContent = run.text;
    const { fg, bg, inverse, ...flags } = run.style;
    tint(span, "fg", inverse ? bg ?? "ground" : fg);
    tint(span, "bg", inverse ? fg ?? "ink" : bg);
    span.classList.add(...Object.keys(flags).map((flag) => `ansi-${flag}`));
    node.append(span);
  }
}

function tint(span, key, color) {
  if (color === undefined) return;
  if (typeof color === "string" || color < 16) { span.classList.add(`ansi-${key}-${color}`); return; }
  span.classList.add(`ansi-${key}-own`);
  span.style.setProperty(`--ansi-${key}`, `rgb(${rgb(color).join(" ")})`);
}
