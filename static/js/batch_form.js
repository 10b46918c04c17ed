// The form of a new batch: whom it would hit stands beside it.
import { follow } from "./consequence.js";

const form = document.getElementById("batch-form");

// Everything that is chosen but the token and what was seen.
function query() {
  const chosen = new URLSearchParams(new FormData(form));
  chosen.delete("csrfmiddlewaretoken");
  chosen.delete("seen");
  return chosen;
}

follow(form, query, (chosen) => { location.search = chosen; });
document.getElementById("batch-show").hidden = true;  // what it shows is there already
