// The steps of decommissioning go on by themselves while somebody waits for jobs to end or for the agent to go.
import { fetchPart } from "./part.js";

const steps = document.getElementById("steps");
const EVERY_MS = 2000;

async function look() {
  const page = await fetchPart();
  const state = page?.querySelector("[data-state]")?.dataset.state;
  if (!state || state === steps.dataset.open) return;
  steps.dataset.open = state;
  steps.replaceChildren(...page.body.childNodes);
}

async function watch() {
  // What somebody types is left alone: only states that hold nothing to type are looked at.
  while (["busy", "leaving"].includes(steps.dataset.open)) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    await look();
  }
}

watch();
