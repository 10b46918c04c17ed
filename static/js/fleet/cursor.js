// Where the keyboard cursor goes on a canvas. `places` is a Map: server -> [[x, y, width]] of its squares.

export function nearest(squares, x) {
  let best = 0;
  squares.forEach(([left], n) => { if (Math.abs(left - x) < Math.abs(squares[best][0] - x)) best = n; });
  return best;
}

// The next square in reading order, or null at either end.
export function beside(places, [server, n], dx) {
  if (server.npus[n + dx]) return [server, n + dx];
  const list = [...places.keys()].filter((one) => one.npus.length), next = list[list.indexOf(server) + dx];
  return next ? [next, dx > 0 ? 0 : next.npus.length - 1] : null;
}

// The nearest square of the line above or below, or null.
export function above(places, [server, n], dy) {
  const [x, y] = places.get(server)[n];
  let best = null, far = Infinity;
  for (const [other, squares] of places) {
    if (!squares.length || (squares[0][1] - y) * dy <= 0) continue;
    const at = nearest(squares, x), score = Math.abs(squares[0][1] - y) * 1000 + Math.abs(squares[at][0] - x);
    if (score < far) { far = score; best = [other, at]; }
  }
  return best;
}
