// The counts above the fleet follow the live states; choosing one filters the page without loading it again.
import { figure } from "../texts.js";
import { tally } from "./model.js";
import { queryOf } from "./query.js";

const ALWAYS = new Set(["", "live", "free", "ours", "foreign"]);

export class Strips {
  constructor(root, choose) {
    this.root = root;
    root.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-show]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const fleet = link.closest("[data-fleet]").dataset.fleet, pressed = link.hasAttribute("aria-current");
      choose(pressed ? { fleet: "", show: "" } : { fleet, show: link.dataset.show });
    });
  }

  update(fleet, asked) {
    for (const strip of this.root.querySelectorAll("[data-fleet]")) {
      const name = strip.dataset.fleet, counts = tally(fleet.servers.filter((server) => server.sim === (name === "simulated")));
      put(strip.querySelector("[data-npus]"), figure(counts.npus));
      for (const link of strip.querySelectorAll("a[data-show]")) {
        const { show } = link.dataset, pressed = asked.fleet === name && asked.show === show;
        put(link.querySelector("b"), figure(counts[show]));
        link.hidden = !(counts[show] || pressed || ALWAYS.has(show));
        if (pressed) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
        link.href = location.pathname + queryOf(asked, pressed ? { fleet: "", show: "" } : { fleet: name, show });
      }
    }
  }

  // jobs: { real: { running, queued }, simulated: … }
  jobs(jobs) {
    for (const strip of this.root.querySelectorAll("[data-fleet]")) {
      for (const link of strip.querySelectorAll("[data-jobs]")) put(link.querySelector("b"), figure(jobs[strip.dataset.fleet]?.[link.dataset.jobs]));
    }
  }
}

function put(node, text) { if (node && node.textContent !== text) node.textContent = text; }
