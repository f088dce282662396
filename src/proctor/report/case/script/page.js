"use strict";
// The page: the results of the checks first; everything below is rendered from the checked bytes.

const STYLE_SHA256 = "the style's SHA-256";
const NOTICE =
  "Nothing below has been verified; it is what the file's author wrote. A script in this file verifies it and replaces " +
  "this sentence with the result; if you can read this, no script ran. `proctor check` verifies it without a browser.";
const STATES = { passed: ["good", "checked"], failed: ["bad", "FAILED"], open: ["warn", "not checked"] };
const PROVES = [
  "If every check passed, the record, its evidence and the later entries are byte for byte what the ledger contained when " +
    "the holder of its key signed the checkpoint. Nobody without that key can have changed them.",
  "It does not prove that the run happened as described: the owner of a ledger can seal a run that never took place. It does " +
    "not prove who owns the key: anyone can make a ledger. Compare the key with one from a source you trust.",
  "It does not prove that the owner has only one history. An earlier checkpoint, kept by you or by a cosigner, does: compare " +
    "it below.",
  "It does not prove that this page's script is proctor's: a forged page can display anything. `proctor check FILE` reads the " +
    "same data without running the page, and reports whether the script is the one that proctor writes.",
];
const IMAGES = { "89504e47": "image/png", ffd8ff: "image/jpeg", "47494638": "image/gif", 52494646: "image/webp" };

/** The element with the facts for readers without JavaScript, as the file must have it. */
function makePlain(facts, name) {
  const sections = facts.map(([title, pairs]) => make("section", "", make("h2", "", title), makePairs(pairs)));
  const main = make("main", "", make("h1", "", name), make("p", "notice", NOTICE), ...sections);
  main.id = "case";
  return main;
}

function makePairs(pairs) {
  return make("dl", "facts", ...pairs.flatMap(([label, value]) => [make("dt", "", label), make("dd", "", value)]));
}

function nameOf({ entry }) {
  const record = entry.at("record");
  return onOneLine(`${say(record.at("experiment_id"))}/${say(record.at("trial_id"))}`, 400);
}

/** Check that the file shows only what follows from its data, and allows no other script. */
async function checkPage(plain, facts, shown) {
  const title = "The page says what its data says";
  const expected = makePlain(facts, nameOf(shown));
  const texts = (root) => [...root.querySelectorAll("h1, h2, p, dt, dd")].map((each) => each.textContent);
  if (!plain.isEqualNode(expected)) {
    const [found, wanted] = [texts(plain), texts(expected)];
    const at = wanted.findIndex((text, place) => text !== found[place]);
    const quote = (text) => JSON.stringify(onOneLine(text ?? "", 80));
    const what = at < 0 ? "something was added" : `it has ${quote(found[at])}, the data give ${quote(wanted[at])}`;
    return { state: "failed", title, detail: `The text in the file does not match its data: ${what}.` };
  }
  if (!(await isBare(shown))) {
    const detail =
      "Something was added to this page, or the policy that blocks other scripts was changed. A browser extension can be " +
      "the cause: open the page again without extensions.";
    return { state: "failed", title, detail };
  }
  const detail = "The text shown without JavaScript matches the data, and the file contains nothing else.";
  return { state: "passed", title, detail };
}

async function isBare(shown) {
  const digest = async (text) => sha256(toUtf8(text));
  const own = document.scripts[1];
  const styles = document.querySelectorAll("style, link");
  const policy = document.querySelector("meta[http-equiv]");
  const head = [...document.head.children].map((element) => element.nodeName).join();
  if (document.scripts.length !== 2 || head !== "META,META,META,META,META,TITLE,STYLE" || !policy) return false;
  const [script, style] = [await digest(own.textContent), await digest(styles[0].textContent)];
  const wanted =
    `default-src 'none'; script-src 'sha256-${toBase64(script)}'; style-src 'sha256-${toBase64(style)}'; ` +
    "img-src data:; base-uri 'none'; form-action 'none'";
  const bodied = [...document.body.childNodes].filter((node) => node.nodeType !== Node.TEXT_NODE || node.data.trim());
  return (
    policy.content === wanted && toHex(style) === STYLE_SHA256 && document.title === `${nameOf(shown)} · proctor case file` &&
    bodied.length === 3 && bodied.map((node) => node.nodeName).join() === "MAIN,SCRIPT,SCRIPT" &&
    !document.body.attributes.length
  );
}

/** The result of all checks, in one sentence. */
function judge(checks) {
  const failed = checks.filter(({ state }) => state === "failed").length;
  const open = checks.filter(({ state }) => state === "open").length;
  if (failed) return ["bad", `${failed === 1 ? "A check" : `${failed} checks`} FAILED: do not rely on what this page shows.`];
  const passed = checks.length - open;
  const left = open ? `; ${open} could not be run` : "";
  return ["good", `${passed} checks passed, none failed${left}. To verify whose ledger it is, compare its key below.`];
}

function makeVerdict(checks) {
  const [kind, sentence] = judge(checks);
  const verdict = make("p", `verdict ${kind}`, sentence);
  verdict.setAttribute("role", "status");
  return verdict;
}

function makeChecks(checks) {
  const list = make("ul", "checks", ...checks.map(({ state, title, detail }) => {
    const [tone, word] = STATES[state];
    return make("li", "", make("span", `tag ${tone}`, word), " ", make("b", "", title), make("p", "", detail));
  }));
  return make("section", "", make("h2", "", "Checks run in your browser"), list,
    make("h3", "", "What this proves, and what it does not"), make("ul", "", ...PROVES.map((text) => make("li", "", text))));
}

function makeComparison(shown) {
  const field = make("textarea");
  field.rows = 3;
  field.spellcheck = false;
  const answer = make("p");
  answer.setAttribute("role", "status");
  const button = make("button", "", "Compare");
  button.type = "button";
  button.addEventListener("click", async () => {
    const [state, detail] = await compareWith(field.value, shown);
    const word = { passed: "same", failed: "DIFFERENT", open: "undecided" }[state];
    answer.replaceChildren(make("span", `tag ${STATES[state][0]}`, word), ` ${detail}`);
  });
  const words = "A public key, checkpoint, root, digest or consistency proof from another source: ";
  return make("section", "noprint", make("h2", "", "Compare with what you have"), make("label", "", words, field), button, answer);
}

function makeTraces(shown) {
  const traces = listTraces(shown);
  const section = make("section", "", make("h2", "", "Trace"));
  if (!traces.length) {
    section.append(make("p", "", "No trace is embedded."));
    return section;
  }
  const place = make("div");
  const choice = make("select", "", ...traces.map(({ path }) => make("option", "", onOneLine(path, 200))));
  let view = null;
  const open = () => {
    const { path, bytes } = traces[choice.selectedIndex];
    view = new TraceView(readTrace(path, bytes));
    place.replaceChildren(view.element);
  };
  choice.selectedIndex = Math.max(0, traces.findIndex(({ path }) => path === findFirstTrace(shown)?.path));
  choice.addEventListener("change", open);
  section.append(make("p", "", make("label", "", "File ", choice)), place);
  open();
  const follow = () => {
    const step = /^#step-(\d{1,15})$/.exec(location.hash);
    if (step) view.goTo(Number(step[1]));
  };
  window.addEventListener("hashchange", follow);
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey;
    if (!isTyping && event.key === "n") view.goToFailure();
  });
  section.follow = follow;
  return section;
}

function makeFiles(shown, title, wanted) {
  const files = shown.evidence.filter(({ path, sha256: sha }) => wanted(path) && shown.files.has(sha));
  const made = files.map((file) => makeFile(file, shown.files.get(file.sha256)));
  return make("section", "", make("h2", "", title), ...(made.length ? made : [make("p", "", "None is embedded.")]));
}

function makeFile({ path, sha256: sha, size }, bytes) {
  const summary = make("summary", "", make("code", "", onOneLine(path, 300)), make("span", "soft", ` ${size} bytes`));
  const details = make("details", "file", summary);
  details.addEventListener("toggle", () => {
    const start = toHex(bytes.subarray(0, 4));
    const kind = Object.keys(IMAGES).find((mark) => start.startsWith(mark));
    if (kind) {
      const image = make("img");
      image.src = `data:${IMAGES[kind]};base64,${toBase64(bytes)}`;
      image.alt = path;
      details.append(image);
    } else {
      details.append(makeText(fromUtf8(bytes)));
    }
    details.append(make("p", "soft", `SHA-256 ${sha}`));
  }, { once: true });
  return details;
}

function makeFolded(title, text) {
  const details = make("details", "file", make("summary", "", title));
  details.addEventListener("toggle", () => details.append(makeText(text)), { once: true });
  return details;
}

function makeCase(found, facts) {
  const { shown } = found;
  const byTitle = new Map(facts);
  const section = (title, ...more) => make("section", "", make("h2", "", title), makePairs(byTitle.get(title)), ...more);
  const isOfVerifier = (path) => /^(steps\/[^/]+\/)?verifier\//.test(path);
  const reward = byTitle.get("Score")[0][1];
  const main = make("main", "", make("p", "soft", "proctor case file"), make("h1", "", nameOf(shown)),
    makeVerdict(found.checks), make("p", "score", "Reward ", make("strong", "", reward)),
    makeChecks(found.checks), makeComparison(shown),
    section("Score"), section("Trial"), section("Pins"), section("Findings"), section("Later entries"), makeTraces(shown),
    makeFiles(shown, "Verifier output", isOfVerifier), makeFiles(shown, "Other files", (path) => !isOfVerifier(path)),
    section("Evidence"),
    section("Place in the ledger", makeFolded("Checkpoint, as signed", shown.noteText),
      makeFolded("Entry, as stored", shown.line), makeFolded("Record, as hashed", shown.entry.at("record").raw)));
  main.id = "case";
  main.querySelector(".score").after(makeContents(main));
  return main;
}

/** Links to the sections of the page. */
function makeContents(main) {
  const links = [...main.querySelectorAll(":scope > section")].map((section) => {
    const title = section.querySelector("h2").textContent;
    section.id = title.toLowerCase().replaceAll(" ", "-");
    const link = make("a", "", title);
    link.href = `#${section.id}`;
    return make("li", "", link);
  });
  const contents = make("nav", "noprint", make("ul", "contents", ...links));
  contents.setAttribute("aria-label", "On this page");
  return contents;
}

async function openCase() {
  const plain = document.getElementById("case");
  const data = document.getElementById("case-data");
  if (!globalThis.crypto?.subtle || !globalThis.DecompressionStream || !"".toWellFormed) {
    plain.querySelector(".notice").textContent =
      "Nothing was verified: this browser lacks WebCrypto or DecompressionStream. Run `proctor check` on this file instead.";
    return;
  }
  const found = await checkCase(data.textContent);
  if (!found.shown) {
    const title = make("h1", "", "Damaged case file");
    plain.replaceWith(make("main", "", title, makeVerdict(found.checks), makeChecks(found.checks)));
    return;
  }
  const facts = listFacts(found.shown);
  for (const node of blanksIn(plain)) node.remove();
  found.checks.push(await checkPage(plain, facts, found.shown));
  const main = makeCase(found, facts);
  plain.replaceWith(main);
  document.title = `${nameOf(found.shown)} · proctor case file`;
  main.querySelectorAll("section").forEach((section) => section.follow?.());
}

/** Line ends between the elements of the file, which have no meaning. */
function blanksIn(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const blanks = [];
  while (walker.nextNode()) if (walker.currentNode.data === "\n") blanks.push(walker.currentNode);
  return blanks;
}

openCase();
