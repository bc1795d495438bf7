// Every frame as one stacked column: how full the pool was and when keys were evicted (red, against the run's busiest column).
function drawTimeline(canvas, history, painter) {
  const { T, n, counts } = history;
  const width = (canvas.width = Math.max(1, Math.round(canvas.clientWidth * painter.dpr)));
  const height = (canvas.height = Math.round(26 * painter.dpr));
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = painter.colours[0];
  ctx.fillRect(0, 0, width, height);
  const columns = [];
  for (let x = 0; x < width; x++) {
    const [from, to] = [Math.floor((x * T) / width), Math.max(Math.floor((x * T) / width) + 1, Math.floor(((x + 1) * T) / width))];
    const sum = new Float64Array(KINDS);
    for (let t = from; t < to; t++) for (let s = 0; s < KINDS; s++) sum[s] += counts[t * KINDS + s];
    columns.push(sum.map((v) => v / (to - from)));
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
