// Above sixty servers no row is told every second. The table then reads again those rows that are on the screen.

const EVERY_MS = 3000, MOST = 60;

// `read(ids)` is called with the ids of the rows in view, while the page itself is.
export function watchVisible(table, read) {
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const id = Number(target.dataset.id);
      if (isIntersecting) seen.add(id);
      else seen.delete(id);
    }
  });
  table.querySelectorAll("tr[data-id]").forEach((row) => observer.observe(row));
  const timer = setInterval(() => { if (seen.size && !document.hidden) read([...seen].slice(0, MOST)); }, EVERY_MS);
  return () => { observer.disconnect(); clearInterval(timer); };
}
