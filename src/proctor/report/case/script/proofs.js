"use strict";
// The Merkle tree of RFC 6962, signed notes and keys as C2SP writes them down. Whatever does not fit throws an Error.

const LOG_KEY = 1;
const COSIGNER_KEY = 4;

/** Hash of an entry's line, without its newline. */
function leafHash(line) {
  return sha256(joinBytes(Uint8Array.of(0), line));
}

function nodeHash(left, right) {
  return sha256(joinBytes(Uint8Array.of(1), left, right));
}

/** See that a path leads from the leaf at a place to the root of a tree of that size. */
async function checkInclusion(leaf, place, tree, path) {
  if (!(place >= 0 && place < tree.size)) throw new Error(`there is no entry ${place} in a tree of ${tree.size}`);
  const ways = follow(place, tree.size, path.length);
  let node = leaf;
  for (const [index, side] of ways.entries()) {
    node = side === "left" ? await nodeHash(path[index], node) : await nodeHash(node, path[index]);
  }
  if (!isSame(node, tree.root)) {
    throw new Error(`entry ${place} is not in the tree of ${tree.size} with the root ${toHex(tree.root)}`);
  }
}

/** On which side each hash of a path stands; "both" trees of a consistency proof take the left ones. */
function follow(place, size, length) {
  const ways = [];
  let at = place;
  let last = size - 1;
  for (let step = 0; step < length; step += 1) {
    if (last === 0) throw new Error(`the path is longer than a tree of ${size} is high`);
    if (at % 2 === 1 || at === last) {
      ways.push("left");
      while (at % 2 === 0 && at > 0) [at, last] = [at / 2, Math.floor(last / 2)];
    } else {
      ways.push("right");
    }
    [at, last] = [Math.floor(at / 2), Math.floor(last / 2)];
  }
  if (last !== 0) throw new Error(`the path is shorter than a tree of ${size} is high`);
  return ways;
}

/** See that the older tree is the beginning of the newer one. */
async function checkConsistency(older, newer, path) {
  if (older.size > newer.size) throw new Error(`a tree of ${newer.size} cannot have grown from one of ${older.size}`);
  if (older.size === 0 || older.size === newer.size) {
    const fits = older.size === 0 || isSame(older.root, newer.root);
    if (path.length || !fits) throw new Error("the proof's path does not fit the sizes of its trees");
    return;
  }
  let [place, size] = [older.size - 1, newer.size];
  while (place % 2 === 1) [place, size] = [(place - 1) / 2, Math.ceil(size / 2)];
  const steps = place === 0 ? [older.root, ...path] : path;
  if (!steps.length) throw new Error("the path between two trees is empty");
  let [old, grown] = [steps[0], steps[0]];
  for (const [index, side] of follow(place, size, steps.length - 1).entries()) {
    const step = steps[index + 1];
    if (side === "left") old = await nodeHash(step, old);
    grown = side === "left" ? await nodeHash(step, grown) : await nodeHash(grown, step);
  }
  if (!isSame(old, older.root)) throw new Error(`the tree of ${older.size} has another root: the log was rewritten`);
  if (!isSame(grown, newer.root)) throw new Error(`the tree of ${newer.size} has another root than the path gives`);
}

/** Hashes of a path as bytes. */
function readPath(hashes) {
  return hashes.map((text) => {
    const hash = typeof text === "string" ? fromHex(text) : null;
    if (!hash || hash.length !== 32) throw new Error("a hash of the path is invalid: expected 64 hex digits");
    return hash;
  });
}

/** The checkpoint in a signed note: origin, tree {size, root}, what is signed, and the signatures. No signature is checked. */
function readNote(text) {
  const found = /^([^\n]+)\n(0|[1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n\n((?:[^\n]+\n)*)$/.exec(text);
  const root = found && fromBase64(found[3]);
  if (!root || root.length !== 32) {
    throw new Error("not a checkpoint: expected origin, size and root, an empty line, and signatures");
  }
  const signatures = found[4].split("\n").slice(0, -1).map(readSignature);
  return { origin: found[1], tree: { size: Number(found[2]), root }, signatures, body: text.slice(0, text.indexOf("\n\n") + 1) };
}

function readSignature(line) {
  const found = /^— ([^ ]+) ([A-Za-z0-9+/=]+)$/.exec(line);
  const coded = found && fromBase64(found[2]);
  if (!coded || coded.length <= 4) throw new Error("a signature line of the checkpoint is invalid");
  return { name: found[1], keyId: toHex(coded.subarray(0, 4)), payload: coded.subarray(4) };
}

/** A public key written name+key id+base64(algorithm ‖ key). */
async function readKey(text) {
  const found = /^([^+\s]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(text);
  const coded = found && fromBase64(found[3]);
  if (!coded || coded.length !== 33 || ![LOG_KEY, COSIGNER_KEY].includes(coded[0])) {
    throw new Error("not a public key: expected name+key id+key");
  }
  const keyId = toHex((await sha256(joinBytes(toUtf8(`${found[1]}\n`), coded))).subarray(0, 4));
  if (keyId !== found[2]) throw new Error(`the key's id is ${keyId}, not ${found[2]}`);
  return { text, name: found[1], keyId, algorithm: coded[0], public: coded.subarray(1) };
}

/** See that a key signed a note; of a cosignature, when (seconds since 1970), else null. */
async function checkNoteSignature(note, key) {
  const line = note.signatures.find((each) => each.name === key.name && each.keyId === key.keyId);
  if (!line) throw new Error(`no signature by ${key.name}+${key.keyId}`);
  let { payload } = line;
  let message = note.body;
  let time = null;
  if (key.algorithm === COSIGNER_KEY) {
    time = payload.subarray(0, 8).reduce((sum, byte) => sum * 256n + BigInt(byte), 0n);
    payload = payload.subarray(8);
    message = `cosignature/v1\ntime ${time}\n${message}`;
  }
  if (!(await isSigned(key.public, toUtf8(message), payload))) {
    throw new Error(`the signature by ${key.name}+${key.keyId} does not fit the checkpoint`);
  }
  return time;
}

/** See that a former key signed the entry that names its successor. */
async function checkHandover(former, { origin, keyText, signature, seq, root }) {
  const bytes = fromBase64(signature || "");
  // Handovers of older versions name no root, and bind neither it nor their place.
  const place = root === null ? "" : `proctor-handover-2\n${origin}\n${seq}\n${root}\n`;
  const message = root === null ? `${origin}\n${keyText}` : `${place}${keyText}`;
  if (!bytes || !(await isSigned(former.public, toUtf8(message), bytes))) {
    throw new Error(`the key ${keyText} is not signed by the one before it`);
  }
}

/** Root of the tree before an entry, as hex: what lies left of its path are that tree's perfect subtrees, the smallest first. */
async function rootBefore(place, size, path) {
  let root = null;
  for (const [index, side] of follow(place, size, path.length).entries()) {
    if (side === "left") root = root === null ? path[index] : await nodeHash(path[index], root);
  }
  return root === null ? null : toHex(root);
}
