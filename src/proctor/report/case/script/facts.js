"use strict";
// The facts of a trial as sections of labels and values, made only from checked bytes. The text in the file for readers
// without JavaScript is made by the same rules (facts.py) and compared with this.

const LONGEST_FACT = 600;
const FIRST_STEPS = 8;
const SPACE = /[\u0000-\u0020\u007f-\u00a0\u2028\u2029\ufeff]+/g;
const LEFT_OUT = { withheld: "withheld", size: "too large to be embedded" };

/** A text on one line, cut. */
function onOneLine(text, longest = LONGEST_FACT) {
  const line = text.replace(SPACE, " ").replace(/^ | $/g, "").toWellFormed();
  const points = Array.from(line.slice(0, 2 * longest + 2));
  return points.length > longest ? `${points.slice(0, longest).join("")}…` : line;
}

/** A value of the entry as people read it: a text, or JSON as it is spelled. */
function say(node) {
  if (node.isNothing) return "none";
  return onOneLine(node.kind === "string" ? node.value : node.raw) || "empty";
}

/** All sections of a case. */
function listFacts(shown) {
  return [
    ["Score", scoreFacts(shown)],
    ["Trial", trialFacts(shown)],
    ["Pins", pinFacts(shown)],
    ["Findings", findingFacts(shown)],
    ["Later entries", remarkFacts(shown)],
    ["Place in the ledger", proofFacts(shown)],
    ["Evidence", evidenceFacts(shown)],
    ["First steps", stepFacts(shown)],
  ];
}

function scoreFacts(shown) {
  const { entry } = shown;
  const evaluation = entry.at("record", "evaluation");
  const reason = entry.at("reason_code");
  const unscored = reason.isNothing ? "not scored" : `not scored (${say(reason)})`;
  const certificate = entry.at("score", "certificate");
  return [
    ["Reward", evaluation.at("reward").isNothing ? unscored : say(evaluation.at("reward"))],
    ["Rewards", say(evaluation.at("breakdown"))],
    ...rewardFileFacts(shown),
    ["Scored by", say(entry.at("score", "profile"))],
    ["Counted as", say(certificate.at("rewards"))],
    ["Basis", say(certificate.at("basis"))],
    ["Exception", say(certificate.at("exception"))],
    ["Group", say(certificate.at("group"))],
  ];
}

function rewardFileFacts(shown) {
  const found = shown.evidence.filter(({ path }) => path === REWARD_JSON || path === REWARD_TEXT);
  if (!found.length) return [["Reward file", "none among the evidence"]];
  return found.map(({ path, sha256 }) => {
    const bytes = shown.files.get(sha256);
    return [path, bytes ? onOneLine(fromUtf8(bytes)) || "empty" : "not embedded"];
  });
}

function trialFacts({ entry }) {
  const record = entry.at("record");
  return [
    ["Trial", say(record.at("trial_id"))],
    ["Experiment", say(record.at("experiment_id"))],
    ["Task", say(record.at("task", "task_id"))],
    ["Dataset", say(record.at("dataset_id"))],
    ["Agent", say(record.at("agent", "adapter"))],
    ["Model", say(record.at("agent", "model"))],
    ["When", say(record.at("timestamp"))],
    ["Duration in seconds", say(record.at("timing", "total_seconds"))],
    ["Cost in USD", say(record.at("cost", "estimated_cost_usd"))],
    ["Cost basis", say(entry.at("cost_basis"))],
    ["Record", say(record.at("completeness"))],
    ["Instruction", say(record.at("inputs", "instruction"))],
  ];
}

function pinFacts({ entry }) {
  const record = entry.at("record");
  return [
    ["Task revision", say(record.at("task", "task_revision"))],
    ["Image", say(record.at("environment", "runtime_image"))],
    ["Environment", say(record.at("environment", "compute_backend"))],
    ["Tools", say(record.at("environment", "tool_versions"))],
    ["Agent revision", say(record.at("agent", "adapter_revision"))],
    ["Settings", say(record.at("agent", "configuration"))],
    ["Input files", say(record.at("inputs", "input_files"))],
    ["Source", say(entry.at("source"))],
    ["Slot", say(entry.at("slot"))],
  ];
}

function findingFacts({ entry }) {
  const found = entry.at("findings").items.map((each) => [say(each.at("code")), say(each.at("message"))]);
  return found.length ? found : [["Findings", "none"]];
}

function remarkFacts({ remarks }) {
  const said = remarks.map(({ seq, entry }) => [`Entry ${seq}`, entry ? sayRemark(entry) : "withheld"]);
  return said.length ? said : [["Entries", "none"]];
}

function sayRemark(entry) {
  const by = say(entry.at("author"));
  switch (entry.at("kind").string) {
    case "review":
      return `review by ${say(entry.at("reviewer"))}: ${say(entry.at("verdict"))}; ${say(entry.at("note"))}`;
    case "supersede": {
      const names = [entry.at("by"), entry.at("subject")].map(
        (each) => `${say(each.at("experiment_id"))}/${say(each.at("trial_id"))}`,
      );
      return `${names[0]} replaces ${names[1]} (${say(entry.at("cause"))}), by ${by}: ${say(entry.at("reason"))}`;
    }
    case "rescore":
      return `rescored by ${say(entry.at("score", "profile"))}, by ${by}: ${say(entry.at("reason"))}`;
    case "withhold":
      return `bytes withheld by ${by}: ${say(entry.at("reason"))}`;
    default:
      return `${say(entry.at("kind"))} by ${by}: ${say(entry.at("text"))}`;
  }
}

function proofFacts({ seq, entry, recordSha256, note, noteText, key, path }) {
  return [
    ["Entry", String(seq)],
    ["Sealed at", say(entry.at("at"))],
    ["Record's SHA-256", recordSha256],
    ["Ledger", onOneLine(note.origin)],
    ["Ledger size", String(note.tree.size)],
    ["Root hash", toHex(note.tree.root)],
    ["Ledger key", onOneLine(key)],
    ["Checkpoint", onOneLine(noteText)],
    ["Inclusion path", path.join(" ") || "empty: it is the only entry"],
  ];
}

function evidenceFacts({ evidence, files, leftOut }) {
  const listed = evidence.map(({ path, sha256, size }) => {
    const why = leftOut.get(sha256);
    const standing = files.has(sha256) ? "embedded" : LEFT_OUT[why] || "not here";
    return [onOneLine(path), `${size} bytes, SHA-256 ${sha256}, ${standing}`];
  });
  return listed.length ? listed : [["Files", "none"]];
}

function stepFacts(shown) {
  const found = findFirstTrace(shown);
  if (!found) return [["Trace", "none is embedded"]];
  return readTrace(found.path, found.bytes, FIRST_STEPS).map(({ step, role, tool, text }) => [
    onOneLine(`step ${step} ${role} ${tool}`),
    onOneLine(text) || "empty",
  ]);
}

/** The trace to show first: the first embedded one that is not empty. */
function findFirstTrace(shown) {
  return listTraces(shown).find(({ path, bytes }) => readTrace(path, bytes, 1).length);
}

/** All embedded files that can be traces. */
function listTraces({ entry, evidence, files }) {
  const outputs = entry.at("record", "outputs");
  const named = [outputs.at("trajectory_path").string, outputs.at("conversation_path").string].filter((path) => path);
  const there = new Map(evidence.filter(({ sha256 }) => files.has(sha256)).map((file) => [file.path, file]));
  return findTraces([...there.keys()], named).map((path) => ({ path, bytes: files.get(there.get(path).sha256) }));
}
