// Controls around the painter. Everything between two releases of the mouse happens here, without the server.
const NAMES = ["free", "cached (evictable)", "in use", "shared (ref > 1)", "null block", "reserved, not written", "evicted in this frame"];
const remembered = new WeakMap();
let wish = null; // what the server last wanted shown: a step, a block, a set of outlined blocks

export default function ({ data, parentElement, setStateValue }) {
  if (!(data instanceof Uint8Array)) return remote(data);
  const root = parentElement.querySelector(".map");
  const meta = metaOf(data);
  const known = remembered.get(root);
  const mount = known?.run === meta.run ? known : { run: meta.run, map: null };
  mount.send = setStateValue;
  remembered.set(root, mount);
  if (mount !== known) {
    known?.map?.stop();
    inflate(data).then((bytes) => {
      if (remembered.get(root) === mount) mount.map = new BlockMap(root, new History(bytes, meta), mount, known?.map);
    });
  }
  return () => mount.map?.player.pause(false);
}

// The second, invisible mount: tells every map of this page what the server wants shown.
function remote(detail) {
  if (!detail) return;
  wish = detail;
  document.dispatchEvent(new CustomEvent("simkv-show", { detail }));
}

class BlockMap {
  constructor(root, history, mount, before) {
    const pick = (selector) => root.querySelector(selector);
    Object.assign(this, { root, history, mount, run: mount.run, aborter: new AbortController() });
    this.cells = pick(".cells");
    this.slider = pick(".time");
    this.timeline = pick(".timeline");
    Object.assign(this, { clock: pick(".clock"), hover: pick(".hover"), legend: pick(".legend") });
    this.painter = new Painter(this.cells, this.history);
    this.player = new Player(pick(".play"), pick(".speed"), history, { seek: (t) => this.seek(t), release: () => this.release() });
    this.painter.only = before?.painter.only ?? -1;
    this.group = history.meta.group ?? null; // maps of one group show the same moment of simulated time
    root.classList.toggle("linked", this.group !== null);
    this.slider.max = this.history.T - 1;
    this.build();
    this.listen();
    this.arrange();
    if (this.group) follow(this, clockOf(this.group) ?? this.history.meta.span[0]);
    else this.seek(this.history.meta.start ?? this.history.T - 1);
    if (wish) this.show(wish);
  }

  send(name, value) {
    this.mount.send(name, value);
  }

  stop() {
    this.player.pause(false);
    clearTimeout(this.settle);
    this.aborter.abort();
    this.sizes.disconnect();
  }

  build() {
    this.legend.replaceChildren(
      ...NAMES.map((name, i) => {
        const button = document.createElement("button");
        button.type = "button";
        button.title = `Pick out: ${name}` + (i === RED ? ". Red: in the shown step. Tinted: earlier in the frame. Counted beside the states." : "");
        button.setAttribute("aria-pressed", this.painter.only === i);
        const [swatch, count] = [document.createElement("i"), document.createElement("b")];
        button.append(swatch, name, count);
        button.hidden = i === RESERVED && !this.history.reserves;
        button.onclick = () => this.pickOut(i);
        return button;
      }),
    );
    this.counts = [...this.legend.querySelectorAll("b")];
    this.root.querySelector(".block").max = this.history.n - 1;
    this.label();
  }

  listen() {
    const { signal } = this.aborter;
    const on = (target, type, handler, options = {}) => target.addEventListener(type, handler, { signal, ...options });
    on(this.slider, "input", () => this.later(+this.slider.value)), on(this.slider, "change", () => this.release());
    on(this.timeline, "pointerdown", (e) => this.scrub(e));
    on(this.timeline, "pointermove", (e) => e.buttons && this.scrub(e));
    on(this.timeline, "pointerup", () => this.release());
    on(this.cells, "pointerdown", (e) => (this.drag = { x: e.offsetX, y: e.offsetY, moved: false, id: e.pointerId }));
    on(this.cells, "pointermove", (e) => this.point(e));
    on(this.cells, "pointerup", (e) => this.click(e));
    on(this.cells, "pointerleave", () => this.say(this.painter.selected));
    on(this.cells, "dblclick", (e) => this.zoom(1, e));
    on(this.cells, "wheel", (e) => (e.ctrlKey || e.metaKey) && (e.preventDefault(), this.zoom(e.deltaY < 0 ? 1 : -1, e)), { passive: false });
    on(this.cells, "keydown", (e) => this.key(e));
    on(this.root, "click", (e) => this.act(e.target.closest?.("[data-do]")?.dataset.do));
    on(this.root.querySelector(".block"), "change", (e) => this.goTo(e.target));
    on(document, "simkv-show", (e) => this.show(e.detail));
    on(document, "simkv-time", (e) => e.detail.group === this.group && follow(this, e.detail.time));
    on(this.root, "transitionend", (e) => e.propertyName === "background-color" && e.target === this.root && this.arrange());
    this.sizes = new ResizeObserver(() => this.root.clientWidth !== this.width && this.arrange());
    this.sizes.observe(this.root);
  }

  // Size and colours, then everything is drawn again.
  arrange() {
    const style = getComputedStyle(this.root);
    const background = style.getPropertyValue("--st-background-color").trim() || "#ffffff";
    const dark = luminance(background) < 128;
    this.width = this.root.clientWidth;
    if (!this.width) return;
    this.painter.layout(this.width, this.history.meta.height ?? 400);
    this.painter.theme(dark, background, style.color);
    this.legend.querySelectorAll("i").forEach((swatch, i) => (swatch.style.background = this.painter.colours[i]));
    drawTimeline(this.timeline, this.history, this.painter);
    this.painter.paint(null);
    this.refresh();
  }

  // Coalesce many input events of one animation frame into one drawing.
  later(frame) {
    this.wanted = frame;
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      this.seek(this.wanted);
    });
  }

  seek(frame) {
    const to = Math.max(0, Math.min(this.history.T - 1, Math.round(frame)));
    const range = this.history.seek(to);
    const marks = this.wish?.marks.length && to === this.wish.frame ? this.wish.marks : null;
    const same = marks === this.painter.marks;
    this.painter.marks = marks;
    this.painter.paint(same ? range : null);
    this.slider.value = to;
    this.refresh();
  }

  refresh() {
    const { history, painter } = this;
    painter.draw();
    const clock = history.clock(history.frame);
    this.clock.textContent = clock;
    this.slider.setAttribute("aria-valuetext", clock);
    for (let s = 0; s < KINDS; s++) this.counts[s].textContent = history.counts[history.frame * KINDS + s].toLocaleString("en");
    if (!this.hovering) this.say(painter.selected);
  }

  label() {
    const { n } = this.history;
    this.cells.setAttribute("aria-label", `Map of ${n.toLocaleString("en")} KV blocks, one cell each, block 0 at the top left`);
  }

  say(block) {
    this.hovering = false;
    const marked = this.painter.marks ? `${this.wish.marks.length.toLocaleString("en")} blocks of ${this.wish.label}` : "";
    if (block < 0) return (this.hover.textContent = marked);
    const byte = this.history.state[block];
    const gone = byte & EVICTED_NOW ? "evicted in this step" : byte & EVICTED ? "evicted in this frame" : "";
    this.hover.textContent = [`block ${block.toLocaleString("en")}`, NAMES[byte & STATE], gone, marked].filter(Boolean).join(" · ");
  }

  release() {
    if (this.group) drive(this.group, { release: true });
    else this.send("frame", this.history.frame);
  }

  select(block, tell = true) {
    this.painter.selected = block;
    this.painter.draw();
    this.say(block);
    if (tell) this.send("sel", block < 0 ? null : { block, frame: this.history.frame });
  }

  clear() {
    this.wish = null;
    this.select(-1);
    this.seek(this.history.frame);
  }

  // A wish names the run it is about: it may arrive before that run's history. Only a new number moves the map, so a slow
  // answer to an earlier release never pulls back a slider that has moved on; outlines are taken over always.
  show(detail) {
    if (detail.run !== this.run) return;
    const moves = detail.seq !== this.wish?.seq;
    const frame = this.history.frameOf(detail.step);
    this.wish = { ...detail, frame };
    this.hovering = false;
    if (moves) {
      this.player.pause(false);
      this.painter.selected = Number.isInteger(detail.block) ? detail.block : -1;
    }
    this.seek(moves ? frame : this.history.frame);
  }

  pickOut(state) {
    this.painter.only = this.painter.only === state ? -1 : state;
    this.legend.querySelectorAll("button").forEach((b, i) => b.setAttribute("aria-pressed", this.painter.only === i));
    this.painter.repalette();
    this.painter.paint(null);
    this.painter.draw();
  }

  scrub(event) {
    if (event.type === "pointerdown") this.timeline.setPointerCapture(event.pointerId);
    const box = this.timeline.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    if (this.group) drive(this.group, { share });
    else this.later(share * (this.history.T - 1));
  }

  point(event) {
    const { drag, painter } = this;
    if (drag && event.buttons && painter.zoomed) {
      const [dx, dy] = [event.offsetX - drag.x, event.offsetY - drag.y];
      if (drag.moved || Math.abs(dx) + Math.abs(dy) > 4) {
        if (!drag.moved) this.cells.setPointerCapture(drag.id);
        Object.assign(drag, { moved: true, x: event.offsetX, y: event.offsetY });
        this.cells.classList.add("drag");
        painter.x += dx * painter.dpr;
        painter.y += dy * painter.dpr;
        painter.clamp();
        painter.draw();
        return;
      }
    }
    const block = painter.at(event.offsetX, event.offsetY);
    this.say(block >= 0 ? block : painter.selected);
    this.hovering = block >= 0;
  }

  click(event) {
    const moved = this.drag?.moved;
    this.drag = null;
    this.cells.classList.remove("drag");
    const block = this.painter.at(event.offsetX, event.offsetY);
    if (moved || event.button !== 0 || block < 0) return;
    this.player.pause();
    this.select(block);
  }

  zoom(direction, event) {
    const { dpr } = this.painter;
    if (event) this.painter.zoom(direction, event.offsetX * dpr, event.offsetY * dpr);
    else if (this.painter.selected < 0) this.painter.zoom(direction);
    else this.painter.zoom(direction, ...this.painter.place(this.painter.selected)), this.follow();
    this.painter.draw();
  }

  goTo(input) {
    const block = input.valueAsNumber;
    if (!Number.isInteger(block) || block < 0 || block >= this.history.n) return input.setCustomValidity("no such block"), input.reportValidity();
    input.setCustomValidity("");
    this.painter.show(block);
    this.select(block);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { painter, history } = this;
    const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: painter.cols, ArrowUp: -painter.cols }[event.key];
    const todo = { " ": "play", ",": "back", ".": "next", Home: "first", End: "last", "+": "in", "=": "in", "-": "out", 0: "fit" }[event.key];
    if (move) {
      const to = painter.selected < 0 ? 0 : painter.selected + move;
      if (to >= 0 && to < history.n) this.select(to, false);
      if (painter.zoomed) this.follow();
    } else if (event.key === "Enter") this.select(Math.max(0, painter.selected));
    else if (event.key === "Escape") this.clear();
    else if (todo) this.act(todo);
    else return;
    event.preventDefault();
  }

  follow() {
    const { painter } = this;
    const [x, y] = painter.place(painter.selected);
    if (x < 0 || y < 0 || x > painter.canvas.width - painter.cell || y > painter.canvas.height - painter.cell) painter.show(painter.selected);
    painter.draw();
  }

  act(name) {
    const { history, painter } = this;
    const steps = { first: 0, back: history.frame - 1, next: history.frame + 1, last: history.T - 1 };
    if (this.group && (name in steps || name === "play")) drive(this.group, { act: name });
    else if (name in steps) {
      this.player.pause(false);
      this.seek(steps[name]);
      clearTimeout(this.settle); // a held key reports once, when it is let go
      this.settle = setTimeout(() => this.release(), 250);
    } else if (name === "play") this.player.toggle();
    else if (name === "in" || name === "out") this.zoom(name === "in" ? 1 : -1);
    else if (name === "fit") {
      painter.cell = painter.fit;
      painter.clamp();
      painter.draw();
    } else if (name === "png") savePicture(this.cells, history.steps[history.frame]);
    else if (name === "link") copyLink(this.root.querySelector('[data-do="link"]'), history.steps[history.frame], painter.selected);
  }
}
