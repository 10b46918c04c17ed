// Uploads a folder in pieces, one after the other. What has come stays: choosing the same files again goes on there.
import { span, t } from "./texts.js";

const form = document.getElementById("upload-form");
const said = document.getElementById("upload-said"), bar = document.getElementById("upload-bar");
const stopButton = document.getElementById("upload-stop"), submit = form.querySelector("[type=submit]");
const UNITS = ["B", "kB", "MB", "GB", "TB"];
let stopped = false;

function amount(count) {
  let unit = 0;
  while (count >= 1000 && unit < UNITS.length - 1) { count /= 1000; unit += 1; }
  return `${unit ? count.toFixed(1) : count} ${UNITS[unit]}`;
}

// Without the name of the chosen folder itself: [[path, file]].
function chosen() {
  const files = [...form.files.files].map((file) => [(file.webkitRelativePath || file.name).split("/"), file]);
  return files.map(([parts, file]) => [parts.length > 1 ? parts.slice(1).join("/") : parts[0], file])
    .filter(([path]) => !path.split("/").some((part) => part.startsWith(".")))
    .sort(([a], [b]) => (a < b ? -1 : 1));
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// The answer as JSON; null where the console does not answer. Throws its words where it refuses.
async function post(url, body, type) {
  const headers = { "X-CSRFToken": form.csrfmiddlewaretoken.value, "Content-Type": type, Accept: "application/json" };
  const answer = await fetch(url, { method: "POST", body, headers }).catch(() => null);
  if (!answer || answer.status >= 502) return null;
  const told = await answer.json().catch(() => ({}));
  if (answer.ok && !answer.redirected) return told;
  const refusal = new Error(told.error ? `${told.error.what} ${told.error.do}` : String(answer.status));
  refusal.code = told.error?.code;
  throw refusal;
}

class Sending {
  constructor(upload, files) {
    this.upload = upload;
    this.files = new Map(files);
    this.here = upload.here;
    this.began = performance.now();
    this.from = upload.here;
  }

  tell() {
    const took = (performance.now() - this.began) / 1000, speed = took > 0 ? (this.here - this.from) / took : 0;
    bar.value = this.upload.size ? this.here / this.upload.size : 1;
    said.textContent = t("%(here)s of %(size)s, %(speed)s/s, %(left)s left", {
      here: amount(this.here), size: amount(this.upload.size), speed: amount(Math.round(speed)),
      left: span(speed > 0 ? (this.upload.size - this.here) / speed : null),
    });
  }

  async all() {
    for (const row of this.upload.files) if (!row.sha256 && !stopped) await this.one(row);
  }

  async one(row) {
    const file = this.files.get(row.name);
    let at = row.here, wait = 1000;
    while (at < row.size && !stopped) {
      const piece = file.slice(at, at + this.upload.piece);
      const url = `${form.dataset.begin}${this.upload.id}/${row.n}/${at}`;
      const told = await post(url, piece, "application/octet-stream");
      if (!told) {
        said.textContent = t("The connection is gone; it goes on by itself.");
        await pause(wait);
        wait = Math.min(wait * 2, 30000);
        at = (await this.seen(row)) ?? at;
        continue;
      }
      this.here += told.here - at;
      at = told.here;
      wait = 1000;
      this.tell();
    }
  }

  // How far that file is: an answer may have been lost after its piece had come.
  async seen(row) {
    const fresh = await this.begin().catch(() => null);
    if (!fresh) return null;
    this.here = fresh.here;
    return fresh.files[row.n].here;
  }

  begin() { return begin(this.upload.name, [...this.files]); }
}

function begin(name, files) {
  const body = { name, pickles: form.pickles.checked, files: files.map(([path, file]) => [path, file.size]) };
  return post(form.dataset.begin, JSON.stringify(body), "application/json");
}

async function run(files) {
  said.textContent = t("Waiting for the console …");
  const upload = await begin(form.elements.name.value.trim(), files);
  if (!upload) throw new Error(t("The connection is gone; it goes on by itself."));
  const sending = new Sending(upload, files);
  await sending.all();
  if (stopped) said.textContent = t("Stopped. Choose the same files again to go on.");
  else location.reload();
}

form.files.addEventListener("change", () => {
  const files = chosen(), size = files.reduce((all, [, file]) => all + file.size, 0);
  const folder = form.files.files[0]?.webkitRelativePath.split("/")[0] ?? "";
  if (!form.elements.name.value) form.elements.name.value = folder.replace(/[^\w.+-]/g, "_");
  said.textContent = t("%(n)s files, %(size)s", { n: files.length, size: amount(size) });
});
stopButton.addEventListener("click", () => { stopped = true; });
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const files = chosen();
  if (!files.length) { said.textContent = t("Nothing was chosen."); return; }
  stopped = false;
  for (const [node, hidden] of [[bar, false], [stopButton, false]]) node.hidden = hidden;
  submit.disabled = true;
  try { await run(files); } catch (error) { said.textContent = error.message; }
  submit.disabled = false;
  stopButton.hidden = true;
});
addEventListener("beforeunload", (event) => { if (submit.disabled && !stopped && bar.value < 1) event.preventDefault(); });
