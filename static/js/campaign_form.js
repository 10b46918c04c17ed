// The form of a campaign: what it would do on each server stands beside it.
import { follow } from "./consequence.js";

const form = document.getElementById("campaign-form");

// Everything that is chosen but the token and what was seen.
function query() {
  const chosen = new URLSearchParams(new FormData(form));
  for (const name of ["csrfmiddlewaretoken", "seen", "why", "ticket"]) chosen.delete(name);
  return chosen;
}

follow(form, query);
document.getElementById("campaign-show").hidden = true;  // what it shows is there already
