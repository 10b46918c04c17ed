// The log of a replica's engine, and the state of the replica above it.
import { followed } from "../log/pieces.js";
import { ENGINE } from "../log/row.js";
import { t } from "../texts.js";

const config = JSON.parse(document.getElementById("log-config").textContent);

const LOOKS = {
  starting: ["info", "state-running"], loading: ["info", "state-running"], ready: ["ok", "state-ok"], degraded: ["warning", "state-warning"],
  draining: ["stale", "state-stale"], stopped: ["", "state-cancelled"], failed: ["critical", "state-failed"],
};

function stateChanged({ state }) {
  const chip = document.querySelector("#replica-state > .chip"), look = LOOKS[state];
  if (!look || !chip) return;
  chip.className = `chip ${look[0]}`;
  chip.querySelector("use").setAttribute("href", `${document.body.dataset.icons}#${look[1]}`);
  chip.querySelector("span").textContent = t(ENGINE[state]);
}

followed(`replica:${config.replica}`, config, (type, data) => { if (type === "state") stateChanged(data); });
