// The entries of a trace as the server gives them: by pages, of which the last ones used are held.

const PAGE = 100;
const MOST_PAGES = 16;

export class Rows {
  constructor(base, part) {
    this.base = base;
    this.part = part;
    this.choice = {};
    this.whole = false;
    this.total = 0;
    this.labelled = false;
    this.pages = new Map();
    this.waiting = new Map();
    this.age = 0;
  }

  address(name, words) {
    const query = new URLSearchParams({ part: this.part, ...this.choice, ...words });
    for (const [key, value] of [...query]) if (value === "") query.delete(key);
    return `${this.base}/${name}?${query}`;
  }

  async ask(name, words = {}) {
    const response = await fetch(this.address(name, words), { headers: { Accept: "application/json" } });
    let answer = {};
    try {
      answer = await response.json();
    } catch {
      throw new Error(`the server answered ${response.status}; is it still running?`);
    }
    if (!response.ok) throw new Error(answer.problem ?? `the server answered ${response.status}`);
    return answer;
  }

  get(at) {
    return this.pages.get(Math.floor(at / PAGE))?.[at % PAGE];
  }

  put(at, row) {
    const page = this.pages.get(Math.floor(at / PAGE));
    if (page) page[at % PAGE] = row;
  }

  clear() {
    this.pages.clear();
    this.waiting.clear();
    this.age += 1;
  }

  // Have some entries at hand; returns whether any of them had to be fetched.
  async ensure(first, last) {
    const wanted = [];
    for (let page = Math.floor(Math.max(first, 0) / PAGE); page * PAGE < Math.min(last, this.total); page += 1) {
      const held = this.pages.get(page);
      if (!held) wanted.push(this.load(page));
      else {
        this.pages.delete(page);
        this.pages.set(page, held);
      }
    }
    await Promise.all(wanted);
    return wanted.length > 0;
  }

  // Have some entries fetched again; they stay as they are until the new ones are there.
  async renew(first, last) {
    const near = [];
    for (let page = Math.floor(Math.max(first, 0) / PAGE); page * PAGE < Math.min(last, this.total); page += 1) near.push(page);
    for (const page of this.pages.keys()) if (!near.includes(page)) this.pages.delete(page);
    await Promise.all(near.map((page) => this.load(page)));
  }

  // There are more entries than there were: the last page is no longer whole.
  async grow(total) {
    const last = Math.floor(Math.max(this.total - 1, 0) / PAGE);
    this.total = total;
    await this.load(last);
  }

  load(page) {
    if (!this.waiting.has(page)) {
      const age = this.age;
      const loading = this.fetchPage(page, age).finally(() => {
        if (this.age === age) this.waiting.delete(page);
      });
      this.waiting.set(page, loading);
    }
    return this.waiting.get(page);
  }

  async fetchPage(page, age) {
    const rows = [];
    const whole = this.whole ? { whole: 1 } : {};
    for (;;) {
      const answer = await this.ask("steps", { from: page * PAGE + rows.length, count: PAGE - rows.length, ...whole });
      if (this.age !== age) return;
      this.total = answer.total;
      this.labelled = answer.labelled;
      rows.push(...answer.rows);
      // Where entries are very long, fewer come than were asked for.
      if (!answer.rows.length || rows.length >= PAGE || page * PAGE + rows.length >= this.total) break;
    }
    this.pages.set(page, rows);
    while (this.pages.size > MOST_PAGES) this.pages.delete(this.pages.keys().next().value);
  }

  // Where an anchor stands among what is shown; null where nothing is.
  async find(anchor) {
    const answer = await this.ask("steps", { around: anchor, count: 0 });
    this.total = answer.total;
    this.labelled = answer.labelled;
    return answer.at;
  }

  async whole_row(at) {
    return (await this.ask("steps", { from: at, count: 1, whole: 1 })).rows[0];
  }

  async folded_row(at) {
    return (await this.ask("steps", { from: at, count: 1 })).rows[0];
  }
}
