// Rows and columns of coloured cells. The blob: u4 length of the JSON, JSON, pad to 4, then f4[measures][rows][columns]; NaN is "nothing there".
// Labels may come from users' traces: they are drawn as text on the canvas and through textContent, never as markup.
const RAMPS = {
  light: { blue: ["#e6edf5", "#7fb2dd", "#1d4f8c"], orange: ["#f8f0e0", "#f0b64a", "#9a5b00"] },
  dark: { blue: ["#1d2733", "#33699f", "#9ad0ff"], orange: ["#2b2418", "#a8741d", "#ffd27a"] },
};
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const luminance = (css) => {
  const [r, g, b] = css.startsWith("#") ? rgb(css) : (css.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
  return 0.3 * r + 0.59 * g + 0.11 * b;
};
const seconds = (v) =>
  v < 0.9995 ? `${+(v * 1000).toPrecision(3)} ms` : v < 60 ? `${+v.toPrecision(3)} s` : `${Math.floor(v / 60)} min ${Math.round(v % 60)} s`;
const FORMATS = {
  percent: (v) => `${(v * 100).toFixed(1)} %`,
  count: (v) => Math.round(v).toLocaleString("en"),
  rate: (v) => (v >= 10 || v === 0 ? Math.round(v).toLocaleString("en") : v.toPrecision(2)),
  seconds,
};
const clock = (v) => [v / 3600, (v / 60) % 60, v % 60].map((x, i) => String(Math.floor(x)).padStart(i ? 2 : 1, "0")).join(":");
const mounts = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".heat");
  const head = new DataView(data.buffer, data.byteOffset, 4).getUint32(0, true);
  const meta = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + head)));
  const start = 4 + head + ((4 - (head % 4)) % 4);
  const values = new Float32Array(data.slice(start).buffer);
  const known = mounts.get(root);
  if (known?.meta.id === meta.id) known.send = setTriggerValue;
  else {
    known?.stop();
    mounts.set(root, new HeatMap(root, meta, values, setTriggerValue, known?.measure ?? 0));
  }
}

class HeatMap {
  constructor(root, meta, values, send, measure) {
    const pick = (selector) => root.querySelector(selector);
    Object.assign(this, { root, meta, values, send, row: -1, aborter: new AbortController() });
    Object.assign(this, { cells: pick(".cells"), hover: pick(".hover"), scale: pick(".scale") });
    this.R = meta.rows.length;
    this.C = meta.columns;
    this.measure = Math.min(measure, meta.measures.length - 1);
    pick(".measures").replaceChildren(...meta.measures.map((m, i) => this.button(m, i)));
    pick(".note").textContent = meta.note ?? "";
    this.cells.setAttribute("aria-label", meta.title);
    const { signal } = this.aborter;
    const on = (target, type, handler) => target.addEventListener(type, handler, { signal });
    on(this.cells, "pointermove", (e) => this.point(e.offsetX, e.offsetY));
    on(this.cells, "pointerleave", () => ((this.row = -1), this.draw(), this.say(-1, -1)));
    on(this.cells, "click", (e) => this.go(this.rowAt(e.offsetY)));
    on(this.cells, "keydown", (e) => this.key(e));
    on(document, "simkv-measure", (e) => e.detail.group === meta.group && this.show(e.detail.measure));
    on(root, "transitionend", (e) => e.propertyName === "background-color" && e.target === root && this.arrange());
    this.sizes = new ResizeObserver(() => root.clientWidth !== this.width && this.arrange());
    this.sizes.observe(root);
    this.arrange();
  }

  button(measure, i) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: measure.name, title: measure.about });
    button.onclick = () => {
      if (this.meta.group) document.dispatchEvent(new CustomEvent("simkv-measure", { detail: { group: this.meta.group, measure: i } }));
      else this.show(i);
    };
    return button;
  }

  show(measure) {
    this.measure = measure;
    this.draw();
  }

  stop() {
    this.aborter.abort();
    this.sizes.disconnect();
  }

  arrange() {
    this.width = this.root.clientWidth;
    if (!this.width) return;
    const style = getComputedStyle(this.root);
    const background = style.getPropertyValue("--st-background-color").trim() || "#ffffff";
    Object.assign(this, { background, text: style.color, dark: luminance(background) < 128, font: style.fontFamily });
    this.dpr = window.devicePixelRatio || 1;
    this.high = Math.max(5, Math.min(this.meta.most ?? 56, Math.floor((this.meta.height - 22) / this.R)));
    const ctx = this.cells.getContext("2d");
    ctx.font = `12px ${this.font}`;
    this.left = Math.min(this.width * 0.32, 10 + Math.max(...this.meta.rows.map((name) => ctx.measureText(name).width)));
    const height = this.high * this.R + 22;
    Object.assign(this.cells, { width: this.width * this.dpr, height: height * this.dpr });
    this.cells.style.height = `${height}px`;
    this.draw();
  }

  ramp() {
    const stops = RAMPS[this.dark ? "dark" : "light"][this.meta.measures[this.measure].scale].map(rgb);
    return (share) => {
      const at = Math.max(0, Math.min(1, share)) * 2;
      const [a, b, t] = at < 1 ? [stops[0], stops[1], at] : [stops[1], stops[2], at - 1];
      return `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * t)).join(",")})`;
    };
  }

  value(r, c) {
    return this.values[(this.measure * this.R + r) * this.C + c];
  }

  draw() {
    const { meta, R, C, left, high, dpr } = this;
    const measure = meta.measures[this.measure];
    const ctx = this.cells.getContext("2d");
    const colour = this.ramp();
    const wide = (this.width - left) / C;
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    ctx.fillStyle = this.background;
    ctx.fillRect(0, 0, this.width, high * R + 22);
    const gap = high >= 9 ? 1 : 0;
    const side = wide >= 8 ? 1 : 0;
    for (let r = 0; r < R; r++)
      for (let c = 0; c < C; c++) {
        const v = this.value(r, c);
        if (v !== v) continue;
        ctx.fillStyle = colour((v - measure.low) / (measure.high - measure.low || 1));
        ctx.fillRect(left + c * wide, r * high, side ? wide - side : wide + 0.4, high - gap);
        if (meta.figures && high >= 13 && wide >= 26 && v) this.figure(ctx, FORMATS[measure.format](v), (v - measure.low) / (measure.high - measure.low || 1), left + c * wide, r * high, wide, high);
      }
    this.stretches(ctx, wide, gap);
    ctx.fillStyle = this.text;
    ctx.font = `12px ${this.font}`;
    ctx.textBaseline = "middle";
    const every = Math.ceil(13 / high);
    for (let r = 0; r < R; r += every) {
      ctx.globalAlpha = this.row >= 0 && r !== this.row ? 0.55 : 0.95;
      ctx.fillText(this.short(ctx, meta.rows[r]), 0, Math.max(6, r * high + high / 2));
    }
    ctx.globalAlpha = 1;
    if (this.row >= 0) {
      ctx.strokeStyle = this.text;
      ctx.strokeRect(left + 0.5, this.row * high + 0.5, this.width - left - 1, high - 1);
    }
    this.axis(ctx, wide);
    this.root.querySelectorAll(".measures button").forEach((b, i) => b.setAttribute("aria-pressed", i === this.measure));
    this.root.querySelector(".low").textContent = FORMATS[measure.format](measure.low);
    this.root.querySelector(".high").textContent = FORMATS[measure.format](measure.high) + (measure.more ? " and more" : "");
    const legend = this.scale.getContext("2d");
    for (let x = 0; x < 160; x++) (legend.fillStyle = colour(x / 159)), legend.fillRect(x, 0, 1, 10);
  }

  figure(ctx, words, share, x, y, wide, high) {
    ctx.font = `11px ${this.font}`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "center";
    ctx.fillStyle = share > 0.5 === this.dark ? "#0d1116" : share > 0.5 || this.dark ? "#ffffff" : "#1d232b";
    if (ctx.measureText(words).width < wide - 3) ctx.fillText(words, x + wide / 2, y + high / 2);
    ctx.textAlign = "left";
  }

  // When a replica was not simply there: hatched while it is down, a bar below while it takes nothing new.
  stretches(ctx, wide, gap) {
    const { meta, left, high } = this;
    if (!meta.span) return;
    const x = (time) => left + ((time - meta.span[0]) / (meta.span[1] - meta.span[0])) * (this.width - left);
    const red = this.dark ? "#ff6b7f" : "#c43a4c";
    for (const { replica, start, end, state } of meta.stretches ?? []) {
      const [a, b, y] = [x(start), Math.max(x(end), x(start) + 2), replica * high];
      if (state === "draining") {
        ctx.fillStyle = this.dark ? "#ffc247" : "#c27c00";
        ctx.fillRect(a, y + high - gap - Math.max(2, high / 5), b - a, Math.max(2, high / 5));
        continue;
      }
      ctx.save();
      ctx.beginPath();
      ctx.rect(a, y, b - a, high - gap);
      ctx.clip();
      ctx.fillStyle = this.background;
      ctx.fillRect(a, y, b - a, high - gap);
      ctx.strokeStyle = state === "down" ? red : this.text;
      ctx.globalAlpha = state === "down" ? 0.9 : 0.35;
      ctx.lineWidth = 1;
      ctx.beginPath();
      for (let k = a - high; k < b + high; k += 5) ctx.moveTo(k, y + high), ctx.lineTo(k + high, y);
      ctx.stroke();
      ctx.restore();
      if (state === "down") (ctx.fillStyle = red), ctx.fillRect(a, y, 2, high - gap);
    }
  }

  axis(ctx, wide) {
    const { meta, left, R, C, high } = this;
    const y = R * high + 12;
    ctx.fillStyle = this.text;
    ctx.globalAlpha = 0.8;
    if (meta.span) {
      const ticks = Math.max(2, Math.min(6, Math.floor((this.width - left) / 110)));
      for (let k = 0; k <= ticks; k++) {
        const time = meta.span[0] + ((meta.span[1] - meta.span[0]) * k) / ticks;
        const words = meta.unit === "steps" ? `step ${FORMATS.count(time)}` : clock(time);
        const w = ctx.measureText(words).width;
        ctx.fillText(words, Math.min(this.width - w, Math.max(left, left + ((this.width - left) * k) / ticks - w / 2)), y);
      }
    } else {
      const every = Math.ceil(26 / wide);
      for (let c = 0; c < C; c += every) ctx.fillText(meta.names[c], left + c * wide + Math.max(0, (wide - ctx.measureText(meta.names[c]).width) / 2), y);
    }
    ctx.globalAlpha = 1;
  }

  short(ctx, name) {
    let cut = name;
    while (cut.length > 3 && ctx.measureText(cut).width > this.left - 6) cut = cut.slice(0, -2) + "…";
    return cut;
  }

  rowAt(y) {
    const row = Math.floor(y / this.high);
    return row >= 0 && row < this.R ? row : -1;
  }

  point(px, py) {
    const row = this.rowAt(py);
    const column = Math.floor(((px - this.left) / (this.width - this.left)) * this.C);
    if (row !== this.row) (this.row = row), this.draw();
    this.say(row, column >= 0 && column < this.C ? column : -1);
  }

  say(row, column) {
    if (row < 0) return (this.hover.textContent = "");
    const { meta } = this;
    const measure = meta.measures[this.measure];
    const parts = [meta.rows[row].trim() ? `${meta.what} ${meta.rows[row]}` : ""];
    if (column >= 0) {
      const v = this.value(row, column);
      if (meta.span) {
        const at = (k) => meta.span[0] + ((meta.span[1] - meta.span[0]) * k) / this.C;
        parts.push(meta.unit === "steps" ? `step ${FORMATS.count(at(column))}` : `${clock(at(column))} – ${clock(at(column + 1))}`);
        const now = (meta.stretches ?? []).find((s) => s.replica === row && s.start < at(column + 1) && s.end > at(column));
        if (now) parts.push(now.state);
      } else parts.push(`${meta.column} ${meta.names[column]}`);
      parts.push(`${measure.name.toLowerCase()} ${v === v ? FORMATS[measure.format](v) : "no data"}`);
    }
    this.hover.textContent = parts.filter(Boolean).join(" · ");
  }

  key(event) {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      this.row = Math.max(0, Math.min(this.R - 1, this.row + move));
      this.draw();
      this.say(this.row, -1);
    } else if (event.key === "Enter" && this.row >= 0) this.go(this.row);
    else return;
    event.preventDefault();
  }

  go(row) {
    if (row >= 0) this.send("row", row);
  }
}
