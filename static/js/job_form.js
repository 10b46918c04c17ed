// The form of a new job.
import { follow } from "./consequence.js";

const form = document.getElementById("job-form");

function query() {
  const chosen = new URLSearchParams(new FormData(form));
  chosen.delete("csrfmiddlewaretoken");
  return chosen;
}

// Another kind has other fields: only the server is kept.
follow(form, query, (chosen) => {
  location.search = new URLSearchParams({ kind: chosen.get("kind"), server: chosen.get("server") ?? "" });
});
