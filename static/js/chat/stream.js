// Reads an engine's event stream: each event's data as JSON, and our own event `error` in words.

export class Refused extends Error {
  constructor({ what, do: then }) { super(what); this.what = what; this.then = then; }
}

// Calls `heard(chunk)` for each event until it ends. Throws Refused with words, and what fetch throws (AbortError).
export async function ask(url, body, token, signal, heard) {
  const answer = await fetch(url, {
    method: "POST", body: JSON.stringify(body), signal, cache: "no-store", redirect: "error",
    headers: { "Content-Type": "application/json", "X-CSRFToken": token, Accept: "text/event-stream, application/json" },
  });
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Refused(told?.error ?? { what: `HTTP ${answer.status}`, do: "" });
  }
  let rest = "", event = "", done = false;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const piece = await reader.read();
    if (piece.done) return done;
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop();
    for (const line of lines.map((one) => one.replace(/\r$/, ""))) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) {
        const data = line.slice(5).trim();
        if (data === "[DONE]") { done = true; continue; }
        const told = parsed(data);
        if (event === "error" && told) throw new Refused(told);
        if (told) heard(told);
      } else if (line === "") event = "";
    }
  }
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return null; }
}
