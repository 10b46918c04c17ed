// One conversation: its messages, the answer that is under way, and its figures.
import { element, t } from "../texts.js";
import { nodes } from "./render.js";
import { ask, Refused } from "./stream.js";

export class Side {
  constructor(section) {
    this.section = section;
    this.list = section.querySelector(".messages");
    this.figures = section.querySelector(".figures");
    this.past = [];
    this.abort = null;
  }

  get isAway() { return "away" in this.section.dataset; }

  // What goes with the messages: the settings of the page, and the replica where one is named.
  body(settings) {
    const { system, ...sampling } = settings;
    return { messages: [...(system ? [{ role: "system", content: system }] : []), ...this.past], ...sampling };
  }

  add(who, css) {
    const item = element("div", css), content = element("div");
    item.append(element("span", "who", who), content);
    this.list.append(item);
    return content;
  }

  // Is the end of the conversation in sight? Only then is it followed.
  get atEnd() { return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40; }

  follow(change) {
    const follows = this.atEnd;
    change();
    if (follows) this.list.scrollTop = this.list.scrollHeight;
  }

  async say(text, settings, token) {
    this.past.push({ role: "user", content: text });
    this.add(t("You"), "you").append(...nodes(text));
    const content = this.add(`${t("Model")} · ${this.section.dataset.model}`, "model");
    this.list.scrollTop = this.list.scrollHeight;
    this.abort = new AbortController();
    const told = new Told(this, content);
    const replica = this.section.querySelector(".replica")?.value;
    const body = { ...this.body(settings), ...(replica ? { replica: Number(replica) } : {}) };
    try {
      const whole = await ask(this.section.dataset.url, body, token, this.abort.signal, (chunk) => told.hear(chunk));
      if (!whole) this.broken(content, t("The answer broke off."));
    } catch (error) {
      if (error.name === "AbortError") this.broken(content, t("Stopped by you."), "quiet");
      else if (error instanceof Refused) this.broken(content, `${error.what} ${error.then ?? ""}`);
      else this.broken(content, `${t("The console does not answer.")} ${t("Try again in a moment.")}`);
    } finally {
      this.abort = null;
      told.end();
      if (told.text) this.past.push({ role: "assistant", content: told.text });
      else this.past.pop();  // an unanswered question is not asked again with the next one
    }
  }

  broken(content, words, css = "broken") {
    this.follow(() => content.append(element("p", css, words)));
  }

  stop() { this.abort?.abort(); }

  clear() {
    this.stop();
    this.past = [];
    this.list.replaceChildren();
    this.figures.textContent = "";
  }
}

// An answer as it comes.
class Told {
  constructor(side, content) {
    this.side = side;
    this.text = "";
    this.thoughts = "";
    this.place = element("div", "text");
    content.append(this.place);
    this.content = content;
    this.began = performance.now();
    this.first = this.last = this.pieces = 0;
    this.usage = this.ended = null;
    side.figures.textContent = t("Waiting for the first token");
  }

  hear(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    const said = choice?.delta?.content, thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning;
    if (choice?.finish_reason) this.ended = choice.finish_reason;
    if (typeof said === "string" && said) this.put(said, false);
    if (typeof thought === "string" && thought) this.put(thought, true);
    this.show();
  }

  put(piece, isThought) {
    this.pieces += 1;
    this.last = performance.now();
    this.first ||= this.last;
    this.side.follow(() => {
      if (isThought) this.thinking().textContent = (this.thoughts += piece);
      else { this.text += piece; this.place.append(document.createTextNode(piece)); }
    });
  }

  // The place of what a reasoning model thinks before it answers.
  thinking() {
    if (!this.thoughtPlace) {
      const details = element("details", "thoughts");
      this.thoughtPlace = element("div", "text");
      details.append(element("summary", "", t("Thoughts")), this.thoughtPlace);
      this.content.prepend(details);
    }
    return this.thoughtPlace;
  }

  show() {
    if (!this.first) return;
    const tokens = this.usage?.completion_tokens ?? this.pieces, span = (this.last - this.first) / 1000;
    const words = [t("TTFT %(ms)s ms", { ms: Math.round(this.first - this.began) })];
    if (tokens > 1 && span > 0) words.push(t("%(rate)s tokens/s", { rate: ((tokens - 1) / span).toFixed(1) }));
    words.push(t(this.usage ? "%(n)s tokens" : "about %(n)s tokens", { n: tokens }));
    if (this.usage?.prompt_tokens) words.push(t("%(n)s tokens asked", { n: this.usage.prompt_tokens }));
    if (this.ended === "length") words.push(t("ended at max_tokens"));
    this.side.figures.textContent = words.join(" · ");
  }

  // Blocks of code are drawn when the whole is there.
  end() {
    this.side.follow(() => this.place.replaceWith(...nodes(this.text)));
    if (this.first) this.show();
    else this.side.figures.textContent = "";
  }
}
