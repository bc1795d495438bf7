// The frames [from, to) of a column: as many for each, or, where maps share one clock, those of the column's stretch of time.
function framesOf(history, x, width) {
  const { T, times, meta } = history;
  if (!meta.span) {
    const from = Math.floor((x * T) / width);
    return [from, Math.max(from + 1, Math.floor(((x + 1) * T) / width))];
  }
  const [t0, t1] = meta.span;
  const at = (column) => t0 + ((t1 - t0) * column) / width;
  if (at(x) > Math.max(times[T - 1], meta.end ?? 0)) return [0, 0];
  const from = history.frameAt(at(x));
  return [from, Math.max(from + 1, history.frameAt(at(x + 1)))];
}

// Every frame as one stacked column: how full the pool was and when keys were evicted (red, against the run's busiest column).
function drawTimeline(canvas, history, painter) {
  const { n, counts } = history;
  const width = (canvas.width = Math.max(1, Math.round(canvas.clientWidth * painter.dpr)));
  const height = (canvas.height = Math.round(26 * painter.dpr));
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = painter.colours[0];
  ctx.fillRect(0, 0, width, height);
  const columns = [];
  for (let x = 0; x < width; x++) {
    const [from, to] = framesOf(history, x, width);
    const sum = new Float64Array(KINDS);
    for (let t = from; t < to; t++) for (let s = 0; s < KINDS; s++) sum[s] += counts[t * KINDS + s];
    columns.push(sum.map((v) => v / Math.max(1, to - from)));
  }
  const most = columns.reduce((high, column) => Math.max(high, column[RED]), 0);
  columns.forEach((column, x) => {
    let y = height;
    for (const s of [2, 3, RESERVED, 1]) {
      const part = (column[s] / n) * height;
      ctx.fillStyle = painter.colours[s];
      ctx.fillRect(x, y - part, 1, part);
      y -= part;
    }
    if (column[RED] > 0) {
      ctx.fillStyle = painter.colours[RED];
      ctx.fillRect(x, 0, 1, Math.max(2, (height * 0.4 * column[RED]) / most));
    }
  });
}
