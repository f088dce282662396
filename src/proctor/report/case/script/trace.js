"use strict";
// A trace's file to what is shown of it: trajectory.jsonl, conversation.jsonl in any dialect, ATIF's trajectory.json.
// What is shown is {step, role, tool, text, more}: `more` is the whole row or block, for those who want to see all of it.

const TRACE_NAMES = ["trajectory.jsonl", "conversation.jsonl", "trajectory.json"];
const COMMAND_KEYS = ["command", "cmd", "keystrokes"];
const MOST_VALUES = 4_000_000;
const DEEPEST_ROW = 200;
const ATIF_ROLES = { agent: "assistant", user: "user", system: "system" };
const PART_ROLES = {
  "system-prompt": "system", "user-prompt": "user", "retry-prompt": "user", text: "assistant", thinking: "thinking",
};

/** Which of these paths can be traces, the one to look at first first. */
function findTraces(paths, named) {
  const places = ["agent/", "", "artifacts/"].flatMap((place) => TRACE_NAMES.map((name) => place + name));
  const steps = paths.filter((path) => /^steps\/[^/]+\//.test(path) && isTraceName(path)).sort();
  const wanted = [...named, ...places, ...steps];
  return [...new Set(wanted)].filter((path) => paths.includes(path));
}

function isTraceName(path) {
  return TRACE_NAMES.includes(path.slice(path.lastIndexOf("/") + 1));
}

/** What is shown of a trace, given its path and its bytes; at most so many. */
function readTrace(path, bytes, most = Infinity) {
  const text = fromUtf8(bytes);
  const reading = { step: 0, names: new Map(), shown: [] };
  if (path.endsWith(".jsonl")) {
    for (let at = 0; at < text.length && reading.shown.length < most; ) {
      const end = text.indexOf("\n", at) < 0 ? text.length : text.indexOf("\n", at);
      readLine(reading, text.slice(at, end));
      at = end + 1;
    }
  } else {
    readAtif(reading, text, most);
  }
  return reading.shown.slice(0, most);
}

function readLine(reading, line) {
  if (!/[^ \t\r]/.test(line)) return;
  const value = parseShallow(line);
  if (value === undefined) {
    show(reading, "unreadable", "", line, line);
    return;
  }
  for (const row of Array.isArray(value) ? value : [value]) {
    if (isObject(row)) readRow(reading, row);
  }
}

/** Whether a JSON text holds more values than so many: commas and opening brackets, outside of strings. */
function hasMoreValues(text, most) {
  let [found, isInside] = [0, false];
  for (let at = 0; at < text.length && text.length > most && found <= most; at += 1) {
    const mark = text[at];
    if (isInside && mark === "\\") at += 1;
    else if (mark === '"') isInside = !isInside;
    else if (!isInside && (mark === "," || mark === "[" || mark === "{")) found += 1;
  }
  return found > most;
}

/** The value of a JSON text; undefined where it is none, nested too deep, or holds too many values. */
function parseShallow(text) {
  if (hasMoreValues(text, MOST_VALUES)) return undefined;
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  for (let level = [value], depth = 0; level.length; depth += 1) {
    if (depth > DEEPEST_ROW) return undefined;
    level = level.flatMap((each) => (typeof each === "object" && each !== null ? Object.values(each) : []));
  }
  return value;
}

function readRow(reading, row) {
  const step = field(row, "step");
  if (Number.isSafeInteger(step) && typeof field(row, "role") === "string") {
    readEntry(reading, row, step);
  } else if (Array.isArray(field(row, "parts")) && ["request", "response"].includes(field(row, "kind"))) {
    readParts(reading, row);
  } else if (!(Object.hasOwn(row, "format") && Object.hasOwn(row, "version"))) {
    readMessage(reading, row);
  }
}

/** An entry of a trajectory: what it says, ran or gave back. */
function readEntry(reading, row, step) {
  reading.step = step;
  const said = ["content", "command", "stdout", "stderr", "output_summary"].map((key) => textOf(field(row, key)));
  show(reading, row.role, textOf(field(row, "tool_name")), said.find((text) => text) || "", row);
}

function readMessage(reading, row) {
  const role = textOf(field(row, "role"));
  const event = field(row, "event");
  const content = field(row, "content");
  if (event === "tool_call") {
    showCall(reading, field(row, "tool_name"), field(row, "arguments"), field(row, "tool_call_id"), row);
    return;
  }
  if (event === "tool_result" || role === "tool" || role === "function") {
    const name = textOf(field(row, "tool_name")) || textOf(field(row, "name"));
    showResult(reading, name, content, field(row, "tool_call_id"), row);
    return;
  }
  if (role === "assistant") reading.step += 1;
  const blocks = Array.isArray(content) ? content.filter(isObject) : [];
  const tools = blocks.filter((block) => /(^|_)tool_(use|result)$/.test(textOf(field(block, "type"))));
  const calls = field(row, "tool_calls");
  const text = joinTexts(content) || textOf(field(row, "refusal"));
  if (text || !(tools.length || (Array.isArray(calls) && calls.length))) show(reading, role, "", text, row);
  for (const block of tools) readBlock(reading, block);
  for (const call of Array.isArray(calls) ? calls : []) readCall(reading, call);
  if (isObject(field(row, "function_call"))) readCall(reading, row.function_call);
}

function readBlock(reading, block) {
  if (block.type.endsWith("use")) {
    showCall(reading, field(block, "name"), field(block, "input"), field(block, "id"), block);
  } else {
    showResult(reading, textOf(field(block, "name")), field(block, "content"), field(block, "tool_use_id"), block);
  }
}

function readCall(reading, given) {
  const call = typeof given === "string" ? parseShallow(given) : given;
  if (!isObject(call)) return;
  const held = isObject(field(call, "function")) ? call.function : call;
  showCall(reading, field(held, "name"), field(held, "arguments"), field(call, "id"), call);
}

/** A message of pydantic-ai: the parts of a request or a response. */
function readParts(reading, row) {
  if (row.kind === "response") reading.step += 1;
  for (const part of row.parts.filter(isObject)) {
    const kind = textOf(field(part, "part_kind"));
    const content = field(part, "content");
    if (kind.endsWith("tool-call")) {
      showCall(reading, field(part, "tool_name"), field(part, "args"), field(part, "tool_call_id"), part);
    } else if (kind.endsWith("tool-return")) {
      showResult(reading, textOf(field(part, "tool_name")), content, field(part, "tool_call_id"), part);
    } else {
      const role = Object.hasOwn(PART_ROLES, kind) ? PART_ROLES[kind] : kind;
      show(reading, role, "", joinTexts(content), part);
    }
  }
}

function readAtif(reading, text, most) {
  const document = parseShallow(text);
  const steps = isObject(document) ? field(document, "steps") : undefined;
  for (const step of Array.isArray(steps) ? steps : []) {
    if (reading.shown.length >= most) return;
    if (!isObject(step)) continue;
    const source = textOf(field(step, "source"));
    if (source === "agent") reading.step += 1;
    const role = Object.hasOwn(ATIF_ROLES, source) ? ATIF_ROLES[source] : source;
    show(reading, role, "", joinTexts(field(step, "message")), step);
    const calls = field(step, "tool_calls");
    for (const call of Array.isArray(calls) ? calls.filter(isObject) : []) {
      showCall(reading, field(call, "function_name"), field(call, "arguments"), field(call, "tool_call_id"), call);
    }
    const observation = field(step, "observation");
    const results = isObject(observation) ? field(observation, "results") : undefined;
    for (const result of Array.isArray(results) ? results.filter(isObject) : []) {
      showResult(reading, "", field(result, "content"), field(result, "source_call_id"), result);
    }
  }
}

function showCall(reading, name, given, id, more) {
  const tool = textOf(name);
  if (typeof id === "string" && tool) reading.names.set(id, tool);
  const parsed = typeof given === "string" ? parseShallow(given) : given;
  const commands = isObject(parsed) ? COMMAND_KEYS.map((key) => field(parsed, key)) : [];
  const command = commands.find((text) => typeof text === "string") || "";
  show(reading, "tool_call", tool, command, more);
}

function showResult(reading, name, content, id, more) {
  const tool = name || (typeof id === "string" && reading.names.get(id)) || "";
  show(reading, "tool_result", tool, joinTexts(content), more);
}

function show(reading, role, tool, text, more) {
  reading.shown.push({ step: reading.step, role, tool, text, more });
}

/** The text of a content: itself, or its blocks that are texts. */
function joinTexts(content) {
  if (!Array.isArray(content)) return textOf(content);
  const texts = content.map((block) => {
    if (!isObject(block)) return textOf(block);
    return textOf(field(block, "text")) || textOf(field(block, "thinking")) || textOf(field(block, "refusal"));
  });
  return texts.filter((text) => text).join("\n");
}

function textOf(value) {
  return typeof value === "string" ? value : "";
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function field(object, key) {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** Whether something that is shown is a tool's failure, as far as its row says so. */
function isFailure({ role, more }) {
  if (role === "unreadable") return true;
  if (role !== "tool_result" || !isObject(more)) return false;
  const code = field(more, "exit_code");
  const outcome = field(more, "outcome");
  const beside = [field(more, "metadata"), field(more, "extra")].filter(isObject);
  const told = beside.map((each) => (isObject(field(each, "conversation")) ? each.conversation : each));
  return (
    (typeof code === "number" && code !== 0) ||
    [more, ...told].some((each) => field(each, "is_error") === true) ||
    outcome === "failed" || outcome === "retried"
  );
}
