"use strict";
// Every check that needs nothing but the case itself, with what it did and its result.
// A check is {state, title, detail}; state is passed, failed or open. An open one could not be run.

const LARGEST_UNPACKED = 2 ** 29;

/** Check a case's data; `found.shown` is what the page may show, null if nothing can be trusted. */
async function checkCase(text) {
  const found = { checks: [], shown: null };
  const run = async (title, work) => {
    try {
      const [state, detail] = await work();
      found.checks.push({ state, title, detail });
    } catch (error) {
      found.checks.push({ state: "failed", title, detail: sentence(error) });
    }
  };
  let data;
  let shown;
  await run("The data in the page can be read", async () => {
    data = readCase(text);
    shown = await readShown(data);
    return ["passed", `A case file of format ${data.format}, written by proctor ${data.proctor}.`];
  });
  if (!shown) return found;
  await run("The entries are in the tree signed by the checkpoint", () => checkEntries(data, shown));
  await run("The ledger's key signed the checkpoint", () => checkSigner(data, shown));
  await run("The evidence matches what was sealed", () => checkEvidence(data, shown));
  await run("Every missing file has a reason", () => checkLeftOut(shown));
  await run("The reward follows from the reward file", () => checkReward(shown));
  await run("Later entries refer to this record", () => checkRemarks(shown));
  await run("Cosignatures", () => checkCosigners(shown));
  found.shown = shown;
  return found;
}

function sentence(error) {
  const text = error.message || String(error);
  // A path is not a word that a sentence can begin with.
  const isWord = /^[a-z]+ /.test(text);
  return `${isWord ? text[0].toUpperCase() : text[0]}${text.slice(1)}.`;
}

/** The data, with its form checked: these keys and no others. */
function readCase(text) {
  const root = parseJson(text);
  expectKeys(root, ["format", "proctor", "script", "trial", "checkpoint", "entries", "files", "left_out"], "the data");
  const format = root.at("format").string;
  if (format !== "proctor-case-1") throw new Error(`format is ${root.at("format").raw}; expected "proctor-case-1"`);
  const entries = root.at("entries").items.map((node) => {
    expectKeys(node, ["seq", "line", "leaf", "path"], "an entry");
    return {
      seq: node.at("seq").value,
      line: node.at("line").string,
      leaf: node.at("leaf").string,
      path: node.at("path").items.map((each) => each.string),
    };
  });
  return {
    format,
    proctor: say(root.at("proctor")),
    script: root.at("script").string,
    trial: root.at("trial").value,
    checkpoint: root.at("checkpoint").string ?? "",
    entries,
    files: root.at("files").items.map((node) => [node.at("sha256").string, node.at("deflate").string]),
    leftOut: root.at("left_out").items.map((node) => [node.at("sha256").string, node.at("why").string]),
  };
}

function expectKeys(node, keys, what) {
  const found = node.kind === "object" ? [...node.value.keys()] : [];
  if (found.sort().join() !== [...keys].sort().join()) throw new Error(`${what} has unexpected or missing keys`);
}

/** What the page may show: the trial's entry as stored, with its evidence. Nothing of it is checked yet. */
async function readShown(data) {
  const own = data.entries.find(({ seq, line }) => seq === data.trial && line !== null);
  if (!own) throw new Error("the trial's own entry is not in the data");
  const entry = parseJson(own.line);
  if (entry.at("kind").string !== "trial") throw new Error("the entry is not a trial");
  const remarks = [];
  let key = "";
  for (const { seq, line } of data.entries) {
    const other = line === null ? null : parseJson(line);
    const kind = other && other.at("kind").string;
    if (kind === "key") key = other.at("key").string ?? "";
    else if (seq !== data.trial) remarks.push({ seq, entry: other });
  }
  return {
    seq: data.trial,
    line: own.line,
    entry,
    recordSha256: toHex(await sha256(toUtf8(entry.at("record").raw))),
    note: readNote(data.checkpoint),
    noteText: data.checkpoint,
    key,
    path: own.path,
    remarks,
    evidence: entry.at("evidence").items.map(readFile),
    files: new Map(),
    altered: new Map(),
    leftOut: new Map(data.leftOut),
  };
}

function readFile(node) {
  const size = node.at("size").value;
  const sha = node.at("sha256").string;
  const path = node.at("path").string;
  if (path === null || !/^[0-9a-f]{64}$/.test(sha ?? "") || !Number.isSafeInteger(size) || size < 0) {
    throw new Error("the entry's list of evidence is invalid");
  }
  return { path, sha256: sha, size };
}

async function checkEntries(data, shown) {
  let before = -1;
  for (const { seq, line, leaf, path } of data.entries) {
    if (!Number.isSafeInteger(seq) || seq <= before) throw new Error("the entries are not in the order of the log");
    before = seq;
    if ((line === null) === (leaf === null)) throw new Error(`entry ${seq}: expected a line or a leaf`);
    const hash = line === null ? readPath([leaf])[0] : await leafHash(toUtf8(line));
    await checkInclusion(hash, seq, shown.note.tree, readPath(path));
    if (line !== null && parseJson(line).at("seq").raw !== String(seq)) {
      throw new Error(`entry ${seq} has the number of another entry`);
    }
  }
  const size = shown.note.tree.size;
  return [
    "passed",
    `The trial is entry ${shown.seq} of ${size}. ${countOf(data.entries.length, "entry", "entries")} of the ledger are ` +
      `in this page; each was hashed and proven to be under the root ${toHex(shown.note.tree.root)}.`,
  ];
}

async function checkSigner(data, shown) {
  let key = null;
  let isBound = false;
  const former = new Set();
  for (const { seq, line, path } of data.entries) {
    const entry = line === null ? null : parseJson(line);
    if (entry === null || entry.at("kind").string !== "key") continue;
    const text = entry.at("key").string ?? "";
    const origin = entry.at("origin").string;
    if (origin !== shown.note.origin) throw new Error(`entry ${seq} names a key of another ledger`);
    if (key === null && seq !== 0) throw new Error("the ledger's first entry, which names its key, is not in the page");
    const root = entry.at("root").string;
    if (key !== null) {
      await checkHandover(key, { origin, keyText: text, signature: entry.at("signature").string, seq, root });
      if (isBound && root === null) throw new Error(`entry ${seq} names a key without its position in the log`);
      if (root !== null && root !== (await rootBefore(seq, shown.note.tree.size, readPath(path)))) {
        throw new Error(`entry ${seq} names a key for another log: the root before it differs`);
      }
      isBound = isBound || root !== null;
    }
    key = await readKey(text);
    if (former.has(toHex(key.public))) throw new Error(`entry ${seq} names a key that was replaced before`);
    former.add(toHex(key.public));
  }
  if (key === null) throw new Error("no entry names the ledger's key");
  await checkNoteSignature(shown.note, key);
  return [
    "passed",
    `It is signed by ${key.text}, the key named in the ledger. This file cannot prove whose key that is: compare it ` +
      "below.",
  ];
}

async function checkEvidence(data, shown) {
  const named = new Map(shown.evidence.map((file) => [file.sha256, file]));
  const unpacked = data.files.reduce((sum, [sha]) => sum + (named.get(sha)?.size ?? 0), 0);
  if (unpacked > LARGEST_UNPACKED) throw new Error(`the files in the page have ${unpacked} bytes unpacked; the limit is ${LARGEST_UNPACKED}`);
  for (const [sha, packed] of data.files) {
    const file = named.get(sha);
    if (file === undefined) throw new Error(`the page holds a file ${sha} that the entry does not name`);
    const bytes = await inflate(fromBase64(packed ?? "") ?? new Uint8Array(), file.size);
    if (bytes !== null && toHex(await sha256(bytes)) === sha) shown.files.set(sha, bytes);
    else shown.altered.set(sha, `${file.path} is not what was sealed: its SHA-256 is not ${sha}`);
  }
  if (shown.altered.size) throw new Error([...shown.altered.values()].join("; "));
  const embedded = shown.evidence.filter(({ sha256: sha }) => shown.files.has(sha)).length;
  const total = shown.evidence.length;
  if (total && !embedded) return ["open", `None of the ${total} files is in this page.`];
  return ["passed", `${embedded} of ${countOf(total, "file")} are in this page, and each has its sealed SHA-256.`];
}

async function checkLeftOut(shown) {
  const away = shown.evidence.filter(({ sha256: sha }) => !shown.files.has(sha) && !shown.altered.has(sha));
  if (!away.length) return ["passed", "Nothing was left out."];
  for (const { path, sha256: sha } of away) {
    const why = shown.leftOut.get(sha);
    if (why !== "size" && why !== "withheld") {
      throw new Error(`${path} is named by the entry, but missing in the page without a reason`);
    }
    if (why === "withheld" && !isToldWithheld(shown, sha)) {
      throw new Error(`${path} is marked as withheld, but no entry in the page withholds it`);
    }
  }
  const told = away.map(({ path, sha256: sha }) => `${path} (${LEFT_OUT[shown.leftOut.get(sha)]})`);
  return ["open", `Not in this page, so not checked: ${told.join(", ")}. The entry has their digests.`];
}

function isToldWithheld(shown, sha) {
  return shown.remarks.some(
    ({ entry }) =>
      entry && entry.at("kind").string === "withhold" &&
      entry.at("subject", "record").string === shown.recordSha256 &&
      entry.at("artifacts").items.some((each) => each.string === sha),
  );
}

async function checkReward(shown) {
  const evaluation = shown.entry.at("record", "evaluation");
  const certificate = shown.entry.at("score", "certificate");
  const isScored =
    !evaluation.at("reward").isNothing || hasMembers(evaluation.at("breakdown")) || hasMembers(certificate.at("rewards"));
  const derived = deriveRewards(shown);
  if (typeof derived === "string") {
    if (isScored) throw new Error(`the reward cannot be derived: ${derived}`);
    return ["open", `The record has no reward, and none could be derived: ${derived}.`];
  }
  const differences = derived.map((each) => findDifference(each, evaluation, certificate));
  const at = differences.indexOf(null);
  if (at < 0) throw new Error(differences[0]);
  const { source, rewards } = derived[at];
  const stated = `The record says ${evaluation.at("reward").raw}.`;
  if (rewards === null) return ["passed", `${source}: no reward. ${stated}`];
  const spelled = [...rewards].map(([name, value]) => `${onOneLine(name, 80)} ${value}`).join(", ");
  const bytes = bytesOf(shown, source);
  const held = bytes ? ` holds ${JSON.stringify(onOneLine(fromUtf8(bytes), 80))}; read as` : ":";
  return ["passed", `${source}${held} ${spelled}; counted as ${chooseReward(rewards) ?? "none"}. ${stated}`];
}

function hasMembers(node) {
  return node.kind === "object" ? node.value.size > 0 : !node.isNothing;
}

/** Where record and certificate say something else than the files give; null where they say the same. */
function findDifference({ source, rewards }, evaluation, certificate) {
  const [stated, breakdown] = [evaluation.at("reward"), evaluation.at("breakdown")];
  const given = rewards ?? new Map();
  const reward = chooseReward(given);
  if (reward === null ? !stated.isNothing : stated.kind !== "number" || stated.value !== reward) {
    return `${source}: reward ${reward ?? "none"}; the record says ${stated.raw}`;
  }
  const lists = [];
  if (!breakdown.isNothing) lists.push([breakdown, isInBreakdown, "the record's breakdown"]);
  if (!certificate.isNothing) {
    const isOperand = (node, value) => Object.is(readOperand(node), value);
    lists.push([certificate.at("rewards"), isOperand, "the certificate's operand"]);
  }
  for (const [node, isSame, what] of lists) {
    const members = node.kind === "object" ? node.value : new Map();
    if (node.kind !== "object" && !node.isNothing) return `${what} cannot be read`;
    if ([...given.keys()].sort().join("\n") !== [...members.keys()].sort().join("\n")) {
      return `${what} has other rewards than ${source} gives`;
    }
    for (const [name, value] of given) {
      const other = members.get(name);
      if (!isSame(other, value)) return `${what} has ${other.raw} for ${name}; ${source}: ${value}`;
    }
  }
  return null;
}

async function checkRemarks(shown) {
  for (const { seq, entry } of shown.remarks) {
    if (entry === null) continue;
    const named = [entry.at("subject", "record").string, entry.at("by", "record").string];
    named.push(...entry.at("about").items.map((each) => each.string));
    if (!named.includes(shown.recordSha256)) throw new Error(`entry ${seq} refers to another trial`);
  }
  const entries = countOf(shown.remarks.length, "entry", "entries");
  const told = shown.remarks.length ? `${entries} with the SHA-256 of this record.` : "No such entry is in this page.";
  return ["passed", `${told} Proving that there are no others requires the whole ledger.`];
}

async function checkCosigners(shown) {
  const others = shown.note.signatures.filter(({ name, keyId }) => !shown.key.startsWith(`${name}+${keyId}+`));
  if (!others.length) return ["open", "Only the ledger's owner signed this checkpoint."];
  const names = others.map(({ name, keyId }) => `${onOneLine(name)}+${keyId}`).join(", ");
  return ["open", `It has signatures by ${names}. Paste their public key below to check one.`];
}

function countOf(number, noun, plural) {
  return `${number} ${number === 1 ? noun : plural || `${noun}s`}`;
}

/** Compare the case with a key, checkpoint, root, digest or consistency proof from another source. */
async function compareWith(pasted, shown) {
  const text = pasted.trim();
  try {
    if (text.startsWith("{")) return await compareProof(parseJson(text), shown);
    if (text.includes("\n")) return await compareNote(readNote(`${text}\n`), shown);
    if (/^(?:[0-9a-fA-F]{64}|[A-Za-z0-9+/]{43}=)$/.test(text)) return compareHash(text, shown);
    return await compareKey(await readKey(text), shown);
  } catch (error) {
    return ["failed", sentence(error)];
  }
}

async function compareKey(key, shown) {
  const time = await checkNoteSignature(shown.note, key);
  if (time === null) return ["passed", `This key signed the checkpoint of this case.`];
  const when = new Date(Number(time) * 1000);
  const told = Number.isNaN(when.valueOf()) ? `second ${time}` : when.toISOString();
  return ["passed", `This key cosigned the checkpoint of this case, at ${told} according to the cosigner.`];
}

async function compareNote(note, shown) {
  const { origin, tree } = shown.note;
  if (note.origin !== origin) throw new Error(`that is a checkpoint of ${note.origin}; this case is of ${origin}`);
  if (note.tree.size !== tree.size) {
    return ["open", `That checkpoint has ${note.tree.size} entries, this one ${tree.size}. To prove that one grew from the ` +
      "other, paste the consistency proof that `proctor ledger prove --since` writes."];
  }
  if (!isSame(note.tree.root, tree.root)) {
    throw new Error("same number of entries, different root: this ledger has two histories");
  }
  return ["passed", "The checkpoint of this case has the same size and the same root."];
}

async function compareProof(proof, shown) {
  if (proof.at("format").string !== "proctor-proof-1" || proof.at("kind").string !== "consistency") {
    throw new Error("that is not a consistency proof");
  }
  const [older, newer] = ["older", "newer"].map((name) => readNote(proof.at(name).string ?? ""));
  if (older.origin !== newer.origin || newer.origin !== shown.note.origin) throw new Error("that is a proof of another ledger");
  await checkConsistency(older.tree, newer.tree, readPath(proof.at("path").items.map((each) => each.string)));
  const own = shown.note.tree;
  if (![older.tree, newer.tree].some((tree) => tree.size === own.size && isSame(tree.root, own.root))) {
    throw new Error("the proof is valid, but neither of its checkpoints is this case's");
  }
  return ["passed", `The ledger grew from ${older.tree.size} to ${newer.tree.size} entries, and the first ${older.tree.size} ` +
    "did not change; one of the two is the checkpoint of this case. Their signatures were not checked."];
}

function compareHash(text, shown) {
  const hash = fromHex(text.toLowerCase()) || fromBase64(text);
  if (isSame(hash, shown.note.tree.root)) return ["passed", "That is the root of this case's checkpoint."];
  if (toHex(hash) === shown.recordSha256) return ["passed", "That is the SHA-256 of this record."];
  const file = shown.evidence.find(({ sha256: sha }) => sha === toHex(hash));
  if (file) return ["passed", `That is the SHA-256 of ${onOneLine(file.path)}.`];
  throw new Error("that is not the root, the record's digest or the digest of an evidence file");
}
