// The logs of a merged view: each with its name and a colour, and a switch. The colour says nothing that the name does
// not: after eight of them they come again.
import { element, figure, t } from "../texts.js";

export const COLOURS = 8;

export class Sources {
  // `turn(keys, on)` is called when switches are moved.
  constructor(list, turn) {
    Object.assign(this, { list, turn, known: new Map() });
    list.addEventListener("change", (event) => this.turn([event.target.value], event.target.checked));
  }

  // Those of the newest answer: new ones are added, what is said of the others is said anew.
  show(sources) {
    for (const source of sources) {
      const { item, note } = this.known.get(source.key) ?? this.#add(source);
      this.known.set(source.key, { ...source, item, note, colour: item.dataset.colour });
      const words = about(source);
      if (note.textContent !== words) note.textContent = words;
    }
  }

  #add(source) {
    const item = element("label", "many-source"), box = element("input"), note = element("small", "quiet");
    item.dataset.colour = this.known.size % COLOURS;
    box.type = "checkbox";
    box.value = source.key;
    box.checked = true;
    item.append(box, element("i", "many-swatch"), element("b", "", source.name), note);
    this.list.append(item);
    return { item, note };
  }

  all(on) {
    const boxes = [...this.list.querySelectorAll("input")].filter((box) => box.checked !== on);
    boxes.forEach((box) => { box.checked = on; });
    if (boxes.length) this.turn(boxes.map((box) => box.value), on);
  }
}

function about({ name, server, lines, offset_s: offset, corrected }) {
  const said = server === name ? [] : [server];
  said.push(lines ? t("%(n)s lines", { n: figure(lines) }) : t("no lines"));
  if (corrected) said.push(t(offset > 0 ? "its clock is %(n)s s fast, corrected" : "its clock is %(n)s s slow, corrected", { n: Math.abs(offset).toFixed(1) }));
  else if (offset === null) said.push(t("its clock is not known"));
  return said.join(" · ");
}
