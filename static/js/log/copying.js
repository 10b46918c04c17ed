// Chosen lines on the clipboard, with their numbers or without; those that are not loaded are fetched first.
import { copy } from "../frame.js";
import { figure, t } from "../texts.js";
import { parse, Rows } from "./records.js";
import { words } from "./row.js";

const MOST = 20_000;

// The rows of a range, in order; at most MOST lines of it.
async function rowsOf(viewer, { from, to }) {
  const { shown, store } = viewer, last = Math.min(to, from + MOST - 1);
  if (shown !== store || (from >= store.low && Math.min(last, store.total) <= store.high)) return shown.rows.list.filter((row) => row.n <= last && row.last >= from);
  const rows = new Rows();
  for (let at = from - 1; at < Math.min(last, store.total);) {
    const answer = await store.read({ after: at, n: Math.min(1000, last - at) });
    if (!answer.n) break;
    parse(answer.text, answer.first).forEach((record) => rows.push(record));
    at = answer.first + answer.n - 1;
  }
  return rows.list;
}

export async function copyLines(viewer, numbered) {
  const range = viewer.range ?? (viewer.cursor && { from: viewer.cursor.n, to: viewer.cursor.last });
  if (!range) return viewer.say(t("Choose lines first: click a number, then another with Shift."), "note");
  let rows;
  try { rows = await rowsOf(viewer, range); } catch { return viewer.say(t("The lines could not be loaded, so nothing was copied.")); }
  const width = String(rows.at(-1)?.n ?? 0).length;
  await copy(rows.map((row) => (numbered ? `${String(row.n).padStart(width)}  ${words(row)}` : words(row))).join("\n"));
  viewer.say(range.to - range.from + 1 > MOST ? t("The first %(n)s lines were copied. The raw log has all of them.", { n: figure(MOST) }) : t("Copied: %(n)s lines", { n: figure(rows.length) }), "note");
}
