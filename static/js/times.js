// Durations and moments as words: the same as deployments/templatetags/jobs.py makes.
import { t } from "./texts.js";

// "0.4 s", "12 s", "2 min 20 s", "3 h 5 min"; "—" for null.
export function took(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "—";
  if (seconds < 9.95) return t("%(n)s s", { n: Math.max(0, seconds).toFixed(1) });
  const whole = Math.round(seconds);
  if (whole < 60) return t("%(n)s s", { n: whole });
  if (whole < 3600) return t("%(m)s min %(s)s s", { m: Math.floor(whole / 60), s: whole % 60 });
  return t("%(h)s h %(m)s min", { h: Math.floor(whole / 3600), m: Math.floor((whole % 3600) / 60) });
}

const two = (n) => String(n).padStart(2, "0");
const clock = (at) => `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}.${String(at.getUTCMilliseconds()).padStart(3, "0")}`;

// "+08:00" of the reader's clock at that moment.
export function offset(ms) {
  const minutes = -new Date(ms).getTimezoneOffset();
  return `${minutes < 0 ? "−" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
}

// A moment of a log line in one of the ways: relative (to `start`), local, utc.
export function stamp(ms, way, start) {
  if (!ms || way === "off") return "";
  if (way === "utc") return `${clock(new Date(ms))}Z`;
  if (way === "local") return `${clock(new Date(ms - new Date(ms).getTimezoneOffset() * 60_000))} ${offset(ms)}`;
  const gone = Math.max(0, ms - (start || ms)) / 1000;
  const hours = Math.floor(gone / 3600), minutes = Math.floor((gone % 3600) / 60), seconds = (gone % 60).toFixed(3).padStart(6, "0");
  return `+${hours ? `${hours}:${two(minutes)}` : minutes}:${seconds}`;
}
