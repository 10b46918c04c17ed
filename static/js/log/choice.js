// Lines chosen by the address: #L93 or #L93-L97. Shift and click goes on from the line chosen before.

const HASH = /^#L(\d{1,15})(?:-L?(\d{1,15}))?$/;

// { from, to } or null.
export function chosen(hash = location.hash) {
  const found = HASH.exec(hash);
  if (!found) return null;
  const ends = [Number(found[1]), Number(found[2] ?? found[1])];
  return { from: Math.min(...ends), to: Math.max(...ends) };
}

export const hashOf = ({ from, to }) => (from === to ? `#L${from}` : `#L${from}-L${to}`);

export const covers = (range, row) => Boolean(range) && row.n <= range.to && row.n >= range.from;

// The range after a click on line `n`.
export function extended(range, n, shift) {
  if (!shift || !range) return { from: n, to: n };
  return { from: Math.min(range.from, n), to: Math.max(range.to, n) };
}
