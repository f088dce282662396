// A list of which only what is near the screen exists. The scroll bar shows the place by entries, not
// by pixels: it does not jump when entries turn out to be higher or lower than was thought.

import { makeRow, makeWaiting } from "./trace_row.js";

const NEAR = 14;
const USUAL = 90;
const FEW = 150;
const IDLE = 160;

export class List {
  constructor(scroller, space, box, rows) {
    Object.assign(this, { scroller, space, box, rows });
    this.nodes = new Map();
    this.at = 0;
    this.offset = 0;
    this.current = 0;
    this.needle = "";
    this.lastTop = 0;
    this.moved = () => {};
    this.troubled = () => {};
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroller);
  }

  get isShort() {
    return this.rows.total <= FEW;
  }

  get isAtEnd() {
    return this.scroller.scrollTop + this.scroller.clientHeight >= this.space.offsetHeight - 8;
  }

  // Begin anew at a place: other entries are shown than before.
  async show(at) {
    this.forget();
    await this.go(at, { focus: false });
  }

  forget() {
    for (const node of this.nodes.values()) node.remove();
    this.nodes.clear();
    this.box.replaceChildren();
  }

  async go(at, { focus = true } = {}) {
    const place = Math.max(0, Math.min(at, this.rows.total - 1));
    await this.rows.ensure(place - NEAR, place + NEAR);
    this.at = place;
    this.offset = 0;
    this.current = place;
    this.draw();
    this.settle();
    const node = this.nodes.get(place);
    if (focus && node) node.focus({ preventScroll: true });
    this.moved(place);
  }

  scrolled() {
    const top = this.scroller.scrollTop;
    const by = top - this.lastTop;
    this.lastTop = top;
    if (!by || !this.rows.total) return;
    if (Math.abs(by) > this.scroller.clientHeight * 3 && !this.isShort) {
      const share = top / (this.space.offsetHeight - this.scroller.clientHeight);
      this.at = Math.max(0, Math.min(this.rows.total - 1, Math.floor(share * this.rows.total)));
      this.offset = 0;
    } else {
      this.offset += by;
      this.normalise();
    }
    this.draw();
    this.current = this.at;
    this.moved(this.current);
    clearTimeout(this.idle);
    this.idle = setTimeout(() => this.settle(), IDLE);
  }

  heightOf(at) {
    return this.nodes.get(at)?.offsetHeight ?? USUAL;
  }

  normalise() {
    while (this.offset < 0 && this.at > 0) {
      this.at -= 1;
      this.offset += this.heightOf(this.at);
    }
    while (this.at < this.rows.total - 1 && this.offset >= this.heightOf(this.at)) {
      this.offset -= this.heightOf(this.at);
      this.at += 1;
    }
    if (this.at === 0 && this.offset < 0) this.offset = 0;
  }

  draw() {
    const { total } = this.rows;
    if (!total) {
      this.forget();
      this.space.style.height = "auto";
      return;
    }
    let first = this.isShort ? 0 : Math.max(0, this.at - NEAR);
    let last = this.isShort ? total : Math.min(total, this.at + NEAR);
    this.place(first, last);
    const height = this.scroller.clientHeight;
    while (last < total && this.below() < height * 2 && last - first < 400) {
      last = Math.min(total, last + NEAR);
      this.place(first, last);
    }
    if (last === total && this.below() < height && !this.isShort) {
      this.offset -= height - this.below();
      this.normalise();
      first = Math.max(0, Math.min(first, this.at - NEAR));
      this.place(first, last);
    }
    this.position(first, last);
    const missing = [...this.nodes].some(([at]) => !this.rows.get(at));
    if (missing) this.fetch(first, last);
  }

  // How far down from the upper edge of the screen entries are drawn.
  below() {
    const node = this.nodes.get(this.at);
    return this.box.offsetHeight - (node ? node.offsetTop : 0) - this.offset;
  }

  fetch(first, last) {
    const arrived = (changed) => {
      if (!changed) return;
      this.draw();
      this.moved(this.current);
    };
    this.rows.ensure(first, last).then(arrived, (error) => this.troubled(error));
  }

  place(first, last) {
    const held = document.activeElement;
    for (const [at, node] of [...this.nodes]) {
      if (at >= first && at < last) continue;
      if (node.contains(held)) this.scroller.focus({ preventScroll: true });
      node.remove();
      this.nodes.delete(at);
    }
    let before = null;
    for (let at = last - 1; at >= first; at -= 1) before = this.placeOne(at, before);
    for (const [at, node] of this.nodes) {
      if (at === this.current) node.setAttribute("aria-current", "true");
      else node.removeAttribute("aria-current");
    }
  }

  placeOne(at, before) {
    const row = this.rows.get(at);
    let node = this.nodes.get(at);
    if (node && node.row !== row) {
      const was = node.contains(document.activeElement);
      const other = this.make(row, at);
      node.replaceWith(other);
      if (was) other.focus({ preventScroll: true });
      node = other;
      this.nodes.set(at, node);
    }
    if (!node) {
      node = this.make(row, at);
      this.box.insertBefore(node, before);
      this.nodes.set(at, node);
    }
    return node;
  }

  make(row, at) {
    const { total } = this.rows;
    const node = row ? makeRow(row, at, total, this.needle) : makeWaiting(at, total);
    node.row = row;
    node.at = at;
    return node;
  }

  // Put what is drawn where the screen is. Near either end the scroll bar has to be true to the pixel.
  position(first, last) {
    const height = this.scroller.clientHeight;
    const drawn = this.box.offsetHeight;
    const above = (this.nodes.get(this.at)?.offsetTop ?? 0) + this.offset;
    const whole = this.isShort ? drawn : Math.max(1e5, drawn + height, Math.min(this.rows.total * USUAL, 1e7));
    this.space.style.height = `${whole}px`;
    if (this.isShort || first === 0) this.setTop(above);
    else if (last === this.rows.total) this.setTop(whole - drawn + above);
    this.box.style.top = `${this.lastTop - above}px`;
  }

  // Nobody scrolls: have the scroll bar tell the place.
  settle() {
    const first = Math.min(...this.nodes.keys());
    const last = Math.max(...this.nodes.keys()) + 1;
    if (this.isShort || !this.nodes.size || first === 0 || last === this.rows.total) return;
    const room = this.space.offsetHeight - this.scroller.clientHeight;
    this.setTop(Math.round((this.at / this.rows.total) * room));
    this.position(first, last);
  }

  setTop(top) {
    if (Math.abs(this.scroller.scrollTop - top) > 1) this.scroller.scrollTop = top;
    this.lastTop = this.scroller.scrollTop;
  }

  mark(at) {
    this.current = at;
    for (const [place, node] of this.nodes) {
      if (place === at) node.setAttribute("aria-current", "true");
      else node.removeAttribute("aria-current");
    }
  }
}
