// NPU squares on one canvas. A row of the fleet table is a heat map of one server, the wall is one of all.
// Colour is the metric, shape is the occupancy. Fires "point" (detail [server, n] or null), "open" (server) and
// "leave" (detail {dx, dy, x}: the cursor would leave this canvas).
import { square, readColours } from "./fleet/square.js";
import { layOut } from "./fleet/layout.js";
import { nearest, beside, above } from "./fleet/cursor.js";

export class Heatmap {
  // sections: [{ title, servers }]; a server has npus, dies, state and steps (one colour step per NPU).
  // `without(server)` says in a word why a server of the wall has no squares.
  constructor(canvas, sections, { metric, cell = 14, gap = 2, names = false, without = () => "" } = {}) {
    Object.assign(this, { canvas, sections, metric, cell, gap, names, without, cursor: null, pointed: null });
    this.pen = canvas.getContext("2d");
    canvas.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") this.#point(this.at(event.offsetX, event.offsetY)); });
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") this.#point(null); });
    canvas.addEventListener("click", (event) => this.#click(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible") && !this.cursor) this.enter({}); });
    canvas.addEventListener("blur", () => this.#moveTo(null));
    this.lay();
  }

  get servers() { return this.sections.flatMap((section) => section.servers); }

  lay(width = this.canvas.parentElement.clientWidth) {
    const ratio = devicePixelRatio || 1;
    this.pen.font = this.#font();
    const { places, titles, labels, across, high } = layOut(this, width);
    Object.assign(this, { places, titles, labels, pointed: null });
    this.cursor = this.#kept(this.cursor);
    this.canvas.width = Math.ceil(across * ratio);
    this.canvas.height = Math.ceil(high * ratio);
    this.canvas.style.width = `${across}px`;
    this.canvas.style.height = `${high}px`;
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw();
  }

  draw() {
    this.colours = readColours();
    const { pen } = this;
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.textBaseline = "middle";
    for (const { text, note, x, y } of this.titles) this.#title(text, note, x, y);
    pen.font = this.#font();
    for (const { text, x, y, quiet } of this.labels) { pen.fillStyle = quiet ? this.colours.quiet : this.colours.soft; pen.fillText(text, x, y); }
    for (const server of this.places.keys()) this.drawServer(server);
  }

  drawServer(server) { for (let n = 0; n < server.npus.length; n += 1) this.drawOne(server, n); }

  drawOne(server, n) {
    const place = this.places.get(server)?.[n];
    if (!place) return;
    const cursor = this.cursor?.[0] === server && this.cursor[1] === n;
    square(this.pen, place, this.cell, server, n, this.metric, this.colours, cursor);
  }

  at(x, y) {
    for (const [server, places] of this.places) {
      if (!places.length || y < places[0][1] - 3 || y > places[0][1] + this.cell + 3) continue;
      const n = places.findIndex(([left, , wide]) => x >= left - 1 && x < left + wide + 1);
      if (n >= 0) return [server, n];
    }
    return null;
  }

  // Where a square is on the screen.
  box([server, n]) {
    const [x, y, wide] = this.places.get(server)[n], frame = this.canvas.getBoundingClientRect();
    return { left: frame.left + x, top: frame.top + y, width: wide, height: this.cell };
  }

  // Put the keyboard cursor on the square nearest to x, or on the first.
  enter({ x = 0 }) {
    const [server, places] = [...this.places].find(([, list]) => list.length) ?? [];
    if (server) this.#moveTo([server, nearest(places, x)]);
  }

  // The same square after the servers were read again.
  #kept(cursor) {
    const server = cursor && [...this.places.keys()].find((one) => one.id === cursor[0].id);
    return server?.npus[cursor[1]] ? [server, cursor[1]] : null;
  }

  #font() { return `12px ${getComputedStyle(document.body).fontFamily}`; }

  #title(text, note, x, y) {
    const { pen } = this;
    pen.font = `600 ${this.#font()}`;
    pen.fillStyle = this.colours.ink;
    pen.fillText(text, x, y);
    const wide = pen.measureText(text).width;
    pen.font = this.#font();
    pen.fillStyle = this.colours.quiet;
    if (x + wide + 10 + pen.measureText(note).width < this.canvas.clientWidth) pen.fillText(note, x + wide + 10, y);
  }

  #point(place) {
    if (place?.[0] === this.pointed?.[0] && place?.[1] === this.pointed?.[1]) return;
    this.pointed = place;
    this.canvas.style.cursor = place ? "pointer" : "";
    this.#tell("point", place);
  }

  // A mouse opens the server; a finger first sees the card, which has the link.
  #click(event) {
    const place = this.at(event.offsetX, event.offsetY);
    if (event.pointerType === "touch") { this.pointed = null; this.#point(place); }
    else if (place) this.#tell("open", place[0]);
    if (!place) this.#openNamed(event.offsetX, event.offsetY);
  }

  // The name of a server on the wall is its link.
  #openNamed(x, y) {
    const label = this.labels.find((one) => x >= one.x && x <= one.x + one.wide && Math.abs(y - one.y) <= this.cell / 2 + 3);
    if (label) this.#tell("open", label.server);
  }

  #moveTo(place) {
    const before = this.cursor;
    this.cursor = place;
    if (before) this.drawOne(...before);
    if (place) this.drawOne(...place);
    this.#point(place);
  }

  #key(event) {
    const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [0, 0];
    if (event.key === "Enter" && this.cursor) return this.#tell("open", this.cursor[0]);
    if (event.key === "Escape") return this.#moveTo(null);
    if (!dx && !dy && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    if (!this.cursor) return this.enter({});
    const [server, n] = this.cursor;
    if (event.key === "Home") return this.#moveTo([server, 0]);
    if (event.key === "End") return this.#moveTo([server, server.npus.length - 1]);
    const next = dx ? beside(this.places, this.cursor, dx) : above(this.places, this.cursor, dy);
    if (next) return this.#moveTo(next);
    this.#tell("leave", { dx, dy, x: this.places.get(server)[n][0] });
  }

  #tell(type, detail) { this.canvas.dispatchEvent(new CustomEvent(type, { detail, bubbles: true })); }
}
