// The step whose section is under the eyes is the current one.
const LINE = 0.4; // of the window's height: what has come above it is being read

export function current(tops, height, atEnd) {
  if (atEnd) return tops.length - 1;
  return Math.max(0, tops.findLastIndex((top) => top < height * LINE));
}

function follow(list) {
  const links = [...list.querySelectorAll("a[href^='#']")];
  const parts = links.map((link) => document.getElementById(link.hash.slice(1)));
  let waits = false;
  const look = () => {
    waits = false;
    const tops = parts.map((part) => part.getBoundingClientRect().top);
    const atEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 2;
    const now = current(tops, window.innerHeight, atEnd);
    links.forEach((link, n) => {
      if (n === now) link.parentElement.setAttribute("aria-current", "step");
      else link.parentElement.removeAttribute("aria-current");
    });
  };
  const soon = () => {
    if (!waits) requestAnimationFrame(look);
    waits = true;
  };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon, { passive: true });
  look();
}

const list = document.getElementById("wizard-steps");
if (list) follow(list);
