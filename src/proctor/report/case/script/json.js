"use strict";
// JSON read strictly, with the place of every value: a record is hashed as it is spelled, so its very text is needed.
// A key that stands twice is refused, as two readers could read it differently.

const DEEPEST = 900;
const LOOSE_NUMBER = /NaN|-?Infinity/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;

/** A value in a text: what kind it is, where it stands, and what is in it. */
class JsonNode {
  constructor(text, kind, start, end, value) {
    this.text = text;
    this.kind = kind;
    this.start = start;
    this.end = end;
    this.value = value;
  }

  /** The value as it is spelled. */
  get raw() {
    return this.text.slice(this.start, this.end);
  }

  /** The value under a key, or under a path of keys; NOTHING where there is none. */
  at(...keys) {
    let node = this;
    for (const key of keys) {
      node = (node.kind === "object" && node.value.get(key)) || NOTHING;
    }
    return node;
  }

  /** The items of a list; none where it is no list. */
  get items() {
    return this.kind === "array" ? this.value : [];
  }

  /** The text of a string; null where it is none. */
  get string() {
    return this.kind === "string" ? this.value : null;
  }

  /** Whether there is nothing: no such key, or null. */
  get isNothing() {
    return this.kind === "null";
  }
}

const NOTHING = new JsonNode("null", "null", 0, 4, null);

/** The value that a text holds, and nothing else; throws an Error where it is no JSON. `isLoose` reads as Python's json
 * does, which harbor reads rewards with: NaN and Infinity are numbers, and of a key that stands twice the last one counts. */
function parseJson(text, isLoose = false) {
  const reading = new JsonReading(text, isLoose);
  const node = reading.value(0);
  if (reading.skip() !== text.length) throw new Error(`something goes on behind the value, at ${reading.at}`);
  return node;
}

class JsonReading {
  constructor(text, isLoose) {
    this.text = text;
    this.isLoose = isLoose;
    this.at = 0;
  }

  skip() {
    while (" \t\r\n".includes(this.text[this.at] || "x")) this.at += 1;
    return this.at;
  }

  value(depth) {
    if (depth > DEEPEST) throw new Error("nested too deep");
    const start = this.skip();
    switch (this.text[start]) {
      case "{":
        return this.object(start, depth);
      case "[":
        return this.array(start, depth);
      case '"':
        return this.string(start);
      case "t":
        return this.word("true", true, start);
      case "f":
        return this.word("false", false, start);
      case "n":
        return this.word("null", null, start);
      default:
        return this.number(start);
    }
  }

  number(start) {
    NUMBER.lastIndex = start;
    LOOSE_NUMBER.lastIndex = start;
    const found = NUMBER.exec(this.text) || (this.isLoose && LOOSE_NUMBER.exec(this.text));
    if (!found) throw new Error(`no JSON at ${start}`);
    this.at = start + found[0].length;
    return new JsonNode(this.text, "number", start, this.at, Number(found[0]));
  }

  string(start) {
    if (this.text[start] !== '"') throw new Error(`no key at ${start}`);
    let end = start;
    let escapes;
    do {
      end = this.text.indexOf('"', end + 1);
      if (end < 0) throw new Error(`the text that begins at ${start} has no end`);
      for (escapes = 0; this.text[end - 1 - escapes] === "\\"; escapes += 1);
    } while (escapes % 2 === 1);
    this.at = end + 1;
    const value = JSON.parse(this.text.slice(start, this.at));
    return new JsonNode(this.text, "string", start, this.at, value);
  }

  word(word, value, start) {
    if (!this.text.startsWith(word, start)) throw new Error(`no JSON at ${start}`);
    this.at = start + word.length;
    return new JsonNode(this.text, value === null ? "null" : "boolean", start, this.at, value);
  }

  object(start, depth) {
    const members = new Map();
    this.list("}", () => {
      const key = this.string(this.skip()).value;
      if (members.has(key) && !this.isLoose) throw new Error(`the key ${JSON.stringify(key)} stands twice`);
      if (this.text[this.skip()] !== ":") throw new Error(`no colon at ${this.at}`);
      this.at += 1;
      members.set(key, this.value(depth + 1));
    });
    return new JsonNode(this.text, "object", start, this.at, members);
  }

  array(start, depth) {
    const items = [];
    this.list("]", () => items.push(this.value(depth + 1)));
    return new JsonNode(this.text, "array", start, this.at, items);
  }

  list(end, readItem) {
    this.at += 1;
    if (this.text[this.skip()] === end) {
      this.at += 1;
      return;
    }
    for (;;) {
      readItem();
      const next = this.text[this.skip()];
      this.at += 1;
      if (next === end) return;
      if (next !== ",") throw new Error(`no comma at ${this.at - 1}`);
    }
  }
}
