"use strict";
// Shows a long trace: entries are created on scrolling, and folded until opened.

const AT_ONCE = 150;
const LONGEST_SHOWN = 50000;
const PREVIEW = 160;

/** An element with a class, texts and children; no text is ever taken for markup. */
function make(name, kind = "", ...children) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  element.append(...children);
  return element;
}

/** A text as it is, cut where it is very long, with a button for the rest. */
function makeText(text) {
  const pre = make("pre", "", text.slice(0, LONGEST_SHOWN));
  pre.tabIndex = 0;
  if (text.length <= LONGEST_SHOWN) return pre;
  const more = make("button", "", `Show all ${text.length.toLocaleString("en")} characters`);
  more.type = "button";
  more.addEventListener("click", () => {
    pre.textContent = text;
    more.remove();
  });
  return make("div", "", pre, more);
}

/** The reader of one trace: its filters above, its entries below. */
class TraceView {
  constructor(shown) {
    this.all = shown;
    this.from = 0;
    this.to = 0;
    this.list = make("ol", "entries");
    this.count = make("p", "soft");
    this.count.setAttribute("role", "status");
    this.earlier = this.button("Show earlier", () => this.extend(-1));
    this.later = this.button("Show later", () => this.extend(1));
    this.element = make("div", "", this.makeFilters(), this.count, this.earlier, this.list, this.later);
    if (window.IntersectionObserver) {
      const watch = new IntersectionObserver((seen) => seen.some((each) => each.isIntersecting) && this.extend(1));
      watch.observe(this.later);
    }
    this.filter();
  }

  button(text, act) {
    const button = make("button", "", text);
    button.type = "button";
    button.addEventListener("click", act);
    return button;
  }

  makeFilters() {
    this.role = make("select", "", make("option", "", "all roles"));
    for (const role of [...new Set(this.all.map((each) => each.role))]) {
      this.role.append(make("option", "", onOneLine(role, 40) || "no role"));
    }
    this.failures = make("input");
    this.failures.type = "checkbox";
    this.words = make("input");
    this.words.type = "search";
    this.step = make("input", "short");
    this.step.type = "number";
    this.step.min = "0";
    for (const input of [this.role, this.failures]) input.addEventListener("change", () => this.filter());
    this.words.addEventListener("input", () => this.filter());
    this.step.addEventListener("change", () => this.goTo(Number(this.step.value)));
    const form = make(
      "form", "filters noprint",
      make("label", "", "Role ", this.role), make("label", "", this.failures, " errors only"),
      make("label", "", "Find ", this.words), make("label", "", "Step ", this.step),
      this.button("Next error", () => this.goToFailure()), this.button("Unfold", () => this.unfold()),
    );
    form.addEventListener("submit", (event) => event.preventDefault());
    return form;
  }

  filter() {
    const role = this.role.selectedIndex ? [...new Set(this.all.map((each) => each.role))][this.role.selectedIndex - 1] : null;
    const words = this.words.value.toLowerCase();
    this.wanted = this.all.filter(
      (each) =>
        (role === null || each.role === role) &&
        (!this.failures.checked || isFailure(each)) &&
        (!words || `${each.tool} ${each.text}`.toLowerCase().includes(words)),
    );
    this.at = -1;
    this.show(0);
  }

  /** Show entries from a place on. */
  show(from) {
    this.list.replaceChildren();
    this.named = new Set();
    [this.from, this.to] = [from, from];
    this.extend(1);
  }

  extend(direction) {
    if (direction > 0) {
      const made = this.wanted.slice(this.to, this.to + AT_ONCE).map((each) => this.makeEntry(each));
      this.list.append(...made);
      this.to += made.length;
    } else {
      const begin = Math.max(0, this.from - AT_ONCE);
      this.list.prepend(...this.wanted.slice(begin, this.from).map((each) => this.makeEntry(each)));
      this.from = begin;
    }
    this.list.start = this.from + 1;
    this.earlier.hidden = this.from === 0;
    this.later.hidden = this.to >= this.wanted.length;
    const total = this.wanted.length.toLocaleString("en");
    this.count.textContent = this.wanted.length ? `${total} of ${this.all.length.toLocaleString("en")} entries` : "No entry matches.";
  }

  makeEntry(shown) {
    const { step, role, tool, text } = shown;
    const failed = isFailure(shown);
    const summary = make(
      "summary", "", make("span", "tag", onOneLine(role, 40) || "no role"), " ", make("b", "", onOneLine(tool, 60)), " ",
      failed ? make("span", "tag bad", "error") : "", " ", make("span", "soft preview", onOneLine(text, PREVIEW)),
    );
    const place = make("a", "place", `step ${step}`);
    place.href = `#step-${step}`;
    const details = make("details", "", summary);
    details.addEventListener("toggle", () => details.open && this.fill(details, shown), { once: true });
    const item = make("li", failed ? "failed" : "", place, details);
    // Of several entries of a step only one can be what a link leads to.
    if (!this.named.has(step)) item.id = `step-${step}`;
    this.named.add(step);
    return item;
  }

  fill(details, { role, text, more }) {
    if (text) details.append(makeText(text));
    const whole = typeof more === "string" ? more : JSON.stringify(more, null, 1);
    if (role === "unreadable") return;
    const all = make("details", "all", make("summary", "soft", "Raw entry"));
    all.addEventListener("toggle", () => all.append(makeText(whole)), { once: true });
    if (!text) all.open = true;
    details.append(all);
  }

  /** Bring a step into view, and open its entries. */
  goTo(step) {
    const place = this.wanted.findIndex((each) => each.step >= step);
    if (place >= 0) this.goToPlace(place);
  }

  goToFailure() {
    const later = this.wanted.findIndex((each, place) => place > this.at && isFailure(each));
    const next = later < 0 ? this.wanted.findIndex(isFailure) : later;
    if (next >= 0) this.goToPlace(next);
    else this.count.textContent = "No errors.";
  }

  goToPlace(place) {
    this.at = place;
    if (place < this.from || place >= this.to) this.show(Math.max(0, place - 5));
    const item = this.list.children[place - this.from];
    item.querySelector("details").open = true;
    item.scrollIntoView({ block: "center" });
    item.querySelector("summary").focus();
  }

  unfold() {
    for (const details of this.list.querySelectorAll("li > details")) details.open = true;
  }
}
