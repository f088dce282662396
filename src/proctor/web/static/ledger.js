// The ledger's pages: a verification on the server as it goes, and an inclusion proof checked here.
// All text goes into the page as text.
"use strict";

function add(parent, name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  parent.append(made);
  return made;
}

// --- a verification on the server -------------------------------------------------------------

async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

function showFound(place, found) {
  place.replaceChildren();
  add(add(place, "div", undefined, found.is_sound ? "notice good" : "notice bad"), "b", found.verdict);
  const list = add(place, "dl", undefined, "facts");
  for (const [what, text] of found.facts) { add(list, "dt", what); add(list, "dd", text); }
  const damages = found.damages.length ? add(place, "ul", undefined, "damages") : null;
  for (const each of found.damages) {
    const item = add(damages, "li");
    add(item, "span", each.kind, "tag bad");
    item.append(` ${each.where}: ${each.message} `);
    if (each.seq !== null) add(item, "a", `entry ${each.seq}`).href = `/ledger/entries/${each.seq}`;
  }
  for (const note of found.notes) add(place, "p", note, "soft");
}

async function problemOf(response) {
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return page.querySelector("main p")?.textContent || `the server answers ${response.status}`;
}

async function verify(place, stopping) {
  const response = await fetch("/ledger/verification/progress", { signal: stopping.signal });
  if (!response.ok) { add(place, "p", await problemOf(response), "bad"); return; }
  const words = add(place, "p", "Beginning…");
  const bar = add(place, "progress");
  bar.setAttribute("aria-label", "Verification progress");
  for await (const progress of linesOf(response)) {
    if (progress.facts) { showFound(place, progress); return; }
    if (progress.problem) { place.replaceChildren(); add(place, "p", progress.problem, "bad"); return; }
    bar.max = progress.total || 1;
    bar.value = progress.done;
    words.textContent = `${progress.what}: ${progress.done.toLocaleString()} of ${progress.total.toLocaleString()}`;
  }
  place.replaceChildren();
  add(place, "p", "The verification was interrupted and has no result.", "bad");
}

const form = document.getElementById("verification");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = document.getElementById("verifying");
  const [button, stop] = form.querySelectorAll("button");
  const stopping = new AbortController();
  place.replaceChildren();
  button.disabled = true;
  stop.hidden = false;
  stop.onclick = () => stopping.abort();
  try {
    await verify(place, stopping);
  } catch (error) {
    place.replaceChildren();
    add(place, "p", stopping.signal.aborted ? "Stopped." : `The server cannot be reached: ${error.message}`, "warn");
  } finally {
    button.disabled = false;
    stop.hidden = true;
  }
});

// --- an inclusion proof, checked here ------------------------------------------------------------

const bytesOf = (text) => new TextEncoder().encode(text);
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const fromBase64 = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

async function sha256(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) { whole.set(part, at); at += part.length; }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
}

// RFC 6962, as RFC 9162 (2.1.3.2) checks it; numbers beyond 32 bits take no bit operators.
async function rootFrom(leaf, index, size, path) {
  let [node, at, last] = [leaf, index, size - 1];
  for (const step of path) {
    if (last === 0) throw new Error("the path is longer than the tree's height");
    if (at % 2 === 1 || at === last) {
      node = await sha256([1], step, node);
      while (at % 2 === 0 && at > 0) { at = at / 2; last = Math.floor(last / 2); }
    } else {
      node = await sha256([1], node, step);
    }
    at = Math.floor(at / 2);
    last = Math.floor(last / 2);
  }
  if (last !== 0) throw new Error("the path is shorter than the tree's height");
  return node;
}

function parseNote(text) {
  const [body, ...signed] = text.split("\n\n");
  const [origin, size, root] = body.split("\n");
  const lines = signed.join("\n\n").split("\n").filter(Boolean);
  return { origin, size: Number(size), root: fromBase64(root), body: body + "\n", lines };
}

async function isSigned(note, key) {
  const [name, id, coded] = [key.split("+")[0], key.split("+")[1], key.split("+").slice(2).join("+")];
  const line = note.lines.find((each) => {
    const [, signer, payload] = each.split(" ");
    return signer === name && toHex(fromBase64(payload).slice(0, 4)) === id;
  });
  if (!line) return false;
  const known = await crypto.subtle.importKey("raw", fromBase64(coded).slice(1), "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", known, fromBase64(line.split(" ")[2]).slice(4), bytesOf(note.body));
}

async function checkProof(place, button) {
  const response = await fetch(button.dataset.proof);
  if (!response.ok) throw new Error(await problemOf(response));
  const proof = await response.json();
  const note = parseNote(proof.checkpoint);
  const list = add(place, "ul", undefined, "checks");
  const say = (isGood, text) => {
    const item = add(list, "li");
    add(item, "span", isGood ? "holds" : "fails", `tag ${isGood ? "good" : "bad"}`);
    item.append(` ${text}`);
  };
  const leaf = proof.line === null ? fromHex(proof.leaf) : await sha256([0], bytesOf(proof.line));
  say(true, proof.line === null
    ? `The line is withheld; its leaf hash is ${toHex(leaf)}.`
    : `The line of ${bytesOf(proof.line).length.toLocaleString()} bytes has the leaf hash ${toHex(leaf)}.`);
  const root = await rootFrom(leaf, proof.seq, note.size, proof.path.map(fromHex));
  const isRoot = toHex(root) === toHex(note.root);
  say(isRoot, `${proof.path.length} hashes lead from it to the root ${toHex(root)}; the checkpoint of ${note.size.toLocaleString()} entries has the root ${toHex(note.root)}.`);
  if (!button.dataset.key) { say(false, "The log names no key, so no signature can be checked."); return; }
  try {
    say(await isSigned(note, button.dataset.key), `The checkpoint is signed by ${button.dataset.key.split("+").slice(0, 2).join("+")}, the key that the log names.`);
  } catch (error) {
    add(list, "li", `This browser cannot check Ed25519 signatures: ${error.message}`);
  }
}

const check = document.getElementById("check");
if (check && window.crypto?.subtle) {
  check.hidden = false;
  check.addEventListener("click", async () => {
    const place = document.getElementById("checked");
    place.replaceChildren();
    try {
      await checkProof(place, check);
    } catch (error) {
      add(place, "p", `Verification failed: ${error.message}`, "bad");
    }
  });
}
