// The page of one joining command: its steps are asked for again each second until the server has joined.

const steps = document.getElementById("join-steps");
const commands = document.getElementById("commands");

async function show() {
  const answer = await fetch(location.pathname, { headers: { "X-Part": "1" } });
  if (!answer.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").body;
  // Only what changed is put in, or a screen reader would read the same each second.
  if (fresh.innerHTML.trim() !== shown) {
    shown = fresh.innerHTML.trim();
    steps.replaceChildren(...fresh.childNodes);
  }
}

let shown = "";

async function again() {
  if (!document.hidden) await show().catch(() => {});
  if (!steps.querySelector("[data-over]")) setTimeout(again, 1000);
}

if (!steps.querySelector("[data-over]")) setTimeout(again, 1000);

commands.addEventListener("click", (event) => {
  if (!event.target.closest("[data-act=copy]")) return;
  const token = commands.querySelector("[name=csrfmiddlewaretoken]").value;
  fetch(commands.dataset.copied, { method: "POST", headers: { "X-CSRFToken": token } }).catch(() => {});
});
