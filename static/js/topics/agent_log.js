// The log of a server's agent in the viewer of job logs: a piece of it is what an attempt is there.
import { followed } from "../log/pieces.js";

const config = JSON.parse(document.getElementById("log-config").textContent);
followed(config.topic, config);
