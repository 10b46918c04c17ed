// What a model says is text and nothing else: blocks between fences become <pre>, all by textContent.
import { element } from "../texts.js";

const FENCE = /^```[^\n`]*$/;

// The nodes of one answer.
export function nodes(text) {
  const made = [];
  let lines = [], code = false;
  const close = () => {
    if (!lines.length) return;
    const node = element(code ? "pre" : "div", code ? "" : "text", lines.join("\n"));
    if (code) node.tabIndex = 0;
    made.push(node);
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (FENCE.test(line.trimEnd())) { close(); code = !code; } else lines.push(line);
  }
  close();
  return made;
}
