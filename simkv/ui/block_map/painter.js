// One pixel of a small picture per block, drawn enlarged: a step touches only the pixels that changed, zoom and pan cost nothing more.
const PALETTES = {
  light: ["#e4e8ee", "#8ec4e8", "#2f6db3", "#f0a202", "#5b5b5b", "#c9b6e4", "#d1495b"],
  dark: ["#242a33", "#3d6f96", "#6fb1f2", "#ffc247", "#9a9a9a", "#6a5488", "#ff6b7f"],
};
const TINT = 0.35;
const CELL_SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32];
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const luminance = (css) => {
  const [r, g, b] = css.startsWith("#") ? rgb(css) : (css.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
  return 0.3 * r + 0.59 * g + 0.11 * b;
};
const pack = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0;

class Painter {
  constructor(canvas, history) {
    Object.assign(this, { canvas, history, selected: -1, marks: null, only: -1, cell: 0, x: 0, y: 0 });
    this.ctx = canvas.getContext("2d");
    this.small = document.createElement("canvas");
  }

  // Cells as big as the space allows; the picture keeps its columns when zoomed, so neighbours stay neighbours.
  layout(width, height) {
    const { n } = this.history;
    this.dpr = window.devicePixelRatio || 1;
    const [W, H] = [Math.floor(width * this.dpr), Math.floor(height * this.dpr)];
    const fits = CELL_SIZES.filter((c) => c <= 24 * this.dpr && Math.ceil(n / Math.floor(W / c)) * c <= H);
    const whole = fits[fits.length - 1] ?? 0;
    const cell = whole >= 4 ? whole : Math.sqrt((W * H) / n); // small cells fill the space even if some are a pixel wider than others
    const zoomed = this.cell > this.fit;
    this.fit = cell;
    this.cols = Math.max(1, Math.min(n, Math.floor(W / cell + 1e-9)));
    this.rows = Math.ceil(n / this.cols);
    if (!zoomed) this.cell = cell;
    this.canvas.width = W;
    this.canvas.height = Math.round(this.rows * cell);
    this.canvas.style.height = `${this.canvas.height / this.dpr}px`;
    this.small.width = this.cols;
    this.small.height = this.rows;
    this.image = this.small.getContext("2d").createImageData(this.cols, this.rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.clamp();
  }

  theme(dark, background, text) {
    this.dark = dark;
    this.colours = PALETTES[dark ? "dark" : "light"];
    Object.assign(this, { background, text });
    this.repalette();
  }

  // A block evicted in the shown step is red; one evicted earlier in a frame of many steps keeps its state's colour with a red tint,
  // or a long run would be red all over. With one state picked out, or some blocks marked, the others step back towards the background.
  repalette() {
    const mix = (a, b, share) => a.map((v, i) => Math.round(v + (b[i] - v) * share));
    const base = rgb(this.dark ? "#12151a" : "#ffffff");
    const colours = this.colours.map(rgb);
    const bytes = [...Array(32).keys()];
    const colour = (byte) => {
      const [own, red] = [colours[byte & STATE] ?? base, colours[RED]];
      if (this.only >= 0 && this.only < RED) return own; // every block of a picked-out state looks the same
      return byte & EVICTED_NOW ? red : byte & EVICTED ? mix(own, red, TINT) : own;
    };
    const apart = (byte) => this.only >= 0 && (this.only === RED ? !(byte & EVICTED) : (byte & STATE) !== this.only);
    const faded = (byte) => mix(base, colour(byte), 0.25);
    this.lut = Uint32Array.from(bytes, (byte) => pack(apart(byte) ? faded(byte) : colour(byte)));
    this.fadedLut = Uint32Array.from(bytes, (byte) => pack(faded(byte)));
  }

  paint(range) {
    const { state, index, n } = this.history;
    const { pixels, lut, fadedLut } = this;
    if (this.marks) {
      for (let b = 0; b < n; b++) pixels[b] = fadedLut[state[b]];
      for (const b of this.marks) pixels[b] = lut[state[b]];
    } else if (range) for (let k = range[0]; k < range[1]; k++) pixels[index[k]] = lut[state[index[k]]];
    else for (let b = 0; b < n; b++) pixels[b] = lut[state[b]];
    this.small.getContext("2d").putImageData(this.image, 0, 0);
  }

  draw() {
    const { ctx, canvas, cell, cols, rows } = this;
    ctx.fillStyle = this.background;
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.imageSmoothingEnabled = cell < 1;
    ctx.drawImage(this.small, this.x, this.y, cols * cell, rows * cell);
    if (cell >= 4) this.grid();
    if (this.selected >= 0) this.outline(this.selected, 2 * this.dpr, cell < 8 ? 4 : 1);
  }

  grid() {
    const { ctx, canvas, cell, cols, rows } = this;
    const line = cell >= 16 ? 2 : 1;
    ctx.beginPath();
    for (let c = Math.max(0, Math.floor(-this.x / cell)); c <= cols && this.x + c * cell <= canvas.width; c++)
      ctx.rect(this.x + c * cell - line, 0, line, canvas.height);
    for (let r = Math.max(0, Math.floor(-this.y / cell)); r <= rows && this.y + r * cell <= canvas.height; r++)
      ctx.rect(0, this.y + r * cell - line, canvas.width, line);
    ctx.fill();
  }

  outline(block, width, grow) {
    const size = Math.max(1, this.cell - (this.cell >= 4 ? 1 : 0)) + 2 * grow;
    const inside = (v, most) => Math.max(grow + 1, Math.min(v, most - size + grow - 1));
    let [x, y] = this.place(block);
    if (!this.zoomed) [x, y] = [inside(x, this.canvas.width), inside(y, this.canvas.height)];
    this.ctx.lineWidth = width + 2;
    this.ctx.strokeStyle = this.background;
    if (grow) this.ctx.strokeRect(x - grow, y - grow, size, size);
    this.ctx.lineWidth = width;
    this.ctx.strokeStyle = this.text;
    this.ctx.strokeRect(x - grow + width / 2, y - grow + width / 2, size - width, size - width);
  }

  place(block) {
    return [this.x + (block % this.cols) * this.cell, this.y + Math.floor(block / this.cols) * this.cell];
  }

  // The block under a point in CSS pixels, or -1.
  at(px, py) {
    const col = Math.floor((px * this.dpr - this.x) / this.cell);
    const row = Math.floor((py * this.dpr - this.y) / this.cell);
    const block = row * this.cols + col;
    return col >= 0 && col < this.cols && row >= 0 && block < this.history.n ? block : -1;
  }

  get zoomed() {
    return this.cell > this.fit;
  }

  zoom(direction, px = this.canvas.width / 2, py = this.canvas.height / 2) {
    const sizes = direction > 0 ? CELL_SIZES.filter((c) => c > this.cell) : CELL_SIZES.filter((c) => c < this.cell).reverse();
    const wanted = sizes[Math.min(this.cell < 6 ? 1 : 0, sizes.length - 1)] ?? this.cell;
    this.enlarge(Math.max(this.fit, wanted), px, py);
  }

  enlarge(cell, px, py) {
    const ratio = cell / this.cell;
    this.x = Math.round(px - (px - this.x) * ratio);
    this.y = Math.round(py - (py - this.y) * ratio);
    this.cell = cell;
    this.clamp();
  }

  show(block) {
    if (this.fit < 8 && this.cell < 12) this.enlarge(12, 0, 0);
    const [x, y] = this.place(block);
    this.x += Math.round(this.canvas.width / 2 - x);
    this.y += Math.round(this.canvas.height / 2 - y);
    this.clamp();
  }

  clamp() {
    this.x = Math.min(0, Math.max(this.x, this.canvas.width - this.cols * this.cell));
    this.y = Math.min(0, Math.max(this.y, this.canvas.height - this.rows * this.cell));
    if (!this.zoomed) this.x = this.y = 0;
    this.canvas.classList.toggle("zoomed", this.zoomed);
  }
}
