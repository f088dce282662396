// One entry of a trace as elements; templates/trace_row.html draws the same. Text of a trace only ever
// becomes the content of text nodes: nothing of it is parsed.

const ROLES = ["system", "user", "assistant", "tool_call", "tool_result", "output"];
const count = new Intl.NumberFormat("en-US");

export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function makeRow(row, at, total, needle) {
  const node = make("article", "entry");
  if (row.is_first) node.classList.add("begins");
  if (row.error) node.classList.add("wrong");
  node.id = `entry-${row.row}`;
  node.tabIndex = -1;
  node.setAttribute("aria-posinset", at + 1);
  node.setAttribute("aria-setsize", total);
  const tool = row.tool ? ` ${row.tool}` : "";
  node.setAttribute("aria-label", `Step ${row.step}, ${row.role}${tool}${row.error ? ", error" : ""}`);
  node.append(makeHead(row));
  for (const note of row.notes ?? []) node.append(make("p", "entry-note warn", note));
  for (const text of row.texts ?? []) node.append(makeText(text, needle));
  if (row.media) node.append(makeMedia(row.media));
  return node;
}

export function makeWaiting(at, total) {
  const node = make("article", "entry waiting");
  node.tabIndex = -1;
  node.setAttribute("aria-posinset", at + 1);
  node.setAttribute("aria-setsize", total);
  node.setAttribute("aria-label", "An entry that is being loaded");
  node.append(make("p", "soft", "…"));
  return node;
}

function makeHead(row) {
  const head = make("header", "entry-head");
  if (row.is_first) {
    const link = make("a", "number", String(row.step));
    link.href = `#step-${row.step}`;
    link.title = `Link to step ${row.step}`;
    head.append(link);
  } else {
    head.append(make("span", "number"));
  }
  const role = ROLES.includes(row.role) ? row.role : "other";
  head.append(make("span", `role role-${role}`, row.role));
  if (row.tool) head.append(make("span", "tool", row.tool));
  if (row.error) head.append(make("span", "tag bad", row.exit_code ? "error" : `error: ${row.error}`));
  if (row.exit_code != null) head.append(make("span", row.exit_code ? "bad" : "soft", `exit ${row.exit_code}`));
  if (row.milliseconds != null) head.append(make("span", "soft", `${count.format(row.milliseconds)} ms`));
  if (row.tokens) head.append(make("span", "soft", row.tokens));
  if (row.call_type) head.append(make("span", "tag", row.call_type));
  if (row.label) {
    const [label, cue, sureness] = row.label;
    const tag = make("span", `tag label-${label}`, `${label}: ${cue}`);
    tag.title = `${sureness.toFixed(2)} sure`;
    head.append(tag);
  }
  if (row.time) {
    const time = make("time", "soft", row.after || row.time);
    if (row.after) time.title = row.time;
    head.append(time);
  }
  return head;
}

function makeText(text, needle) {
  const node = make("div", `text text-${text.kind}`);
  if (text.label) node.append(make("span", "text-label", text.label));
  node.append(makePre(text.folded.text, needle));
  const { characters = 0, lines = 0, end } = text.folded;
  if (characters) {
    const size = `${count.format(lines)} lines, ${count.format(characters)} characters`;
    const more = make("p", "more");
    // Only what has an end was folded; what has none was too long even for a whole one.
    if (end !== undefined) more.append(make("button", "unfold", `${size} folded`));
    else more.append(make("span", "soft", `${size} more in the file, on the trial's page`));
    node.append(more);
    if (end) node.append(makePre(end, needle));
  }
  return node;
}

function makePre(text, needle) {
  const pre = make("pre");
  const lowered = needle ? text.toLowerCase() : "";
  // Some capital letters are as long as two small ones: then places would be wrong.
  if (!needle || lowered.length !== text.length) {
    pre.textContent = text;
    return pre;
  }
  let from = 0;
  for (let at = lowered.indexOf(needle); at >= 0; at = lowered.indexOf(needle, from)) {
    pre.append(text.slice(from, at), make("mark", "", text.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  pre.append(text.slice(from));
  return pre;
}

function makeMedia(media) {
  const node = make("p", "media");
  for (const medium of media) {
    const name = make(medium.href ? "a" : "span", medium.href ? "" : "soft", medium.name);
    if (medium.href) name.href = medium.href;
    else name.title = "not among the trial's files";
    node.append(name, " ");
  }
  return node;
}
