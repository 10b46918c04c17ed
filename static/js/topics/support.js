// The page of a support bundle: drawn anew by the server as parts arrive, at most once a second. What was opened stays.
import { exchange, redrawn } from "../part.js";

const live = document.getElementById("support-live");
const parts = () => [...live.querySelectorAll("details.support-part")];

function draw(fresh) {
  const open = parts().map((one) => one.open);
  exchange(live, fresh);
  parts().forEach((one, n) => { one.open = open[n] ?? false; });
}

redrawn(live, draw, { also: ["jobs"] });  // a job that ends without sending leaves gaps
