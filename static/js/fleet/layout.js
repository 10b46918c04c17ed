// Places of squares on a canvas: [x, y, width] per NPU. Two chips of one card share the width of one square, and a
// small gap stands after the fourth card, so that eight are counted at a glance.

const TITLE = 26, LINE_GAP = 8, BETWEEN = 18, MIDDLE = 4;

export function layOut(map, width) {
  return map.names ? wall(map, width) : oneRow(map);
}

function squares(server, left, top, { cell, gap }) {
  return server.npus.map((_, n) => {
    const card = Math.floor(n / server.dies), die = n % server.dies;
    const wide = server.dies === 2 ? (cell - 1) / 2 : cell;
    return [left + card * (cell + gap) + Math.floor(card / 4) * MIDDLE + die * (wide + 1), top, wide];
  });
}

function span(server, { cell, gap }) {
  const cards = Math.ceil(server.npus.length / server.dies);
  return cards ? cards * (cell + gap) - gap + Math.floor((cards - 1) / 4) * MIDDLE : 0;
}

function oneRow(map) {
  const [server] = map.sections[0].servers;
  const places = new Map([[server, squares(server, 1, 1, map)]]);
  return { places, titles: [], labels: [], across: span(server, map) + 2, high: map.cell + 2 };
}

function wall(map, width) {
  const servers = map.servers, names = servers.map((server) => map.pen.measureText(server.name).width);
  const label = Math.min(110, Math.max(36, ...names)) + 8;
  const tile = label + Math.max(map.cell * 4, ...servers.map((server) => span(server, map))) + BETWEEN;
  const columns = Math.max(1, Math.floor((width + BETWEEN) / tile)), step = Math.floor((width + BETWEEN) / columns);
  const places = new Map(), titles = [], labels = [];
  let top = 0;
  for (const { title, note, servers: members } of map.sections) {
    if (title) { titles.push({ text: title, note, x: 0, y: top + TITLE / 2 + 2 }); top += TITLE; }
    members.forEach((server, i) => {
      const left = (i % columns) * step, y = top + Math.floor(i / columns) * (map.cell + LINE_GAP) + LINE_GAP / 2;
      labels.push({ text: fit(map.pen, server.name, label - 8), x: left, y: y + map.cell / 2 + 1, wide: label - 8, server });
      if (!server.npus.length) labels.push({ text: map.without(server), x: left + label, y: y + map.cell / 2 + 1, wide: 60, quiet: true, server });
      places.set(server, squares(server, left + label, y, map));
    });
    top += Math.ceil(members.length / columns) * (map.cell + LINE_GAP) + (title ? 4 : 0);
  }
  return { places, titles, labels, across: width, high: Math.max(top, 24) };
}

// The end of a name tells servers apart, so the beginning gives way.
function fit(pen, text, most) {
  if (pen.measureText(text).width <= most) return text;
  let cut = text;
  while (cut.length > 1 && pen.measureText(`…${cut}`).width > most) cut = cut.slice(1);
  return `…${cut}`;
}
