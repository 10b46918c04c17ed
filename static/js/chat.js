// The playground: one message goes to each conversation of the page. Nothing is kept: no storage, no address.
import { curl, python } from "./chat/copy.js";
import { Side } from "./chat/side.js";
import { t } from "./texts.js";

const form = document.getElementById("chat"), fields = form.elements;
const sides = [...document.querySelectorAll(".side")].map((section) => new Side(section));
const told = document.getElementById("chat-told");

// Only what was given: an engine has its own defaults, of the model's generation_config.
function settings() {
  const made = { system: fields.system.value.trim() };
  for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
    if (fields[name].value !== "" && fields[name].validity.valid) made[name] = Number(fields[name].value);
  }
  const stops = fields.stop.value.split("\n").filter(Boolean).slice(0, 4);
  return stops.length ? { ...made, stop: stops } : made;
}

function busy(on) {
  document.getElementById("send").disabled = on;
  document.getElementById("stop-button").disabled = !on;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = fields.message.value.trim();
  if (!text || sides.some((side) => side.abort)) return;
  told.textContent = "";
  fields.message.value = "";
  busy(true);
  const token = fields.csrfmiddlewaretoken.value, wanted = settings();
  await Promise.all(sides.filter((side) => !side.isAway).map((side) => side.say(text, wanted, token)));
  busy(false);
  fields.message.focus();
});

fields.message.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;  // Enter also ends a Chinese input
  event.preventDefault();
  form.requestSubmit();
});

document.getElementById("stop-button").addEventListener("click", () => sides.forEach((side) => side.stop()));
document.getElementById("clear").addEventListener("click", () => {
  sides.forEach((side) => side.clear());
  fields.message.focus();
});

for (const side of sides) {
  side.section.addEventListener("click", async (event) => {
    const kind = event.target.dataset?.copy;
    if (!kind) return;
    const { base, model } = side.section.dataset, typed = fields.message.value.trim();
    const body = { model, ...side.body(settings()), stream: true };
    if (typed || !body.messages.length) body.messages = [...body.messages, { role: "user", content: typed || "Hello" }];
    const text = kind === "curl" ? curl(base, body) : python(base, body);
    told.textContent = await navigator.clipboard?.writeText(text).then(() => t("Copied"), () => null)
      ?? t("Copying was refused: mark the text instead.");
  });
}

window.addEventListener("pagehide", () => sides.forEach((side) => side.stop()));
