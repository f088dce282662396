"use strict";
// The page: what was checked is said first, and everything below it is made from the bytes that were checked.

const STYLE_SHA256 = "the style's SHA-256";
const NOTICE =
  "Nothing on this page has been checked yet. A script in this file checks it and says so here; where this sentence " +
  "stays, no script ran, and what stands below is only what whoever made the file wrote. `proctor check` checks it " +
  "without a browser.";
const STATES = { passed: ["good", "checked"], failed: ["bad", "FAILED"], open: ["warn", "not checked"] };
const PROVES = [
  "If every check passed, the record, its evidence and what was said of it are byte for byte what the holder of the " +
    "ledger's key had in the ledger when the checkpoint was signed. Nobody without that key can have changed them.",
  "It does not prove that the run happened as it says: an owner can seal a run that never took place. It does not prove that " +
    "the key belongs to whom you think: anybody can make a ledger. Compare the key with one that came to you by another way.",
  "It does not prove that this is the owner's only history. A checkpoint that you or a cosigner kept from before binds the " +
    "owner: compare it below.",
  "It does not prove that the script of this page is proctor's: whoever writes a page can write one that says what they like. " +
    "`proctor check FILE` reads the same data, runs nothing of the page, and says whether the script is the one it would " +
    "have written.",
];
const IMAGES = { "89504e47": "image/png", ffd8ff: "image/jpeg", "47494638": "image/gif", 52494646: "image/webp" };

/** The element that holds the facts for readers without script, as it must stand in the file. */
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

/** See that the file shows nothing but what follows from its data, and lets no other script run. */
async function checkPage(plain, facts, shown) {
  const title = "The page says what its data says";
  const expected = makePlain(facts, nameOf(shown));
  const texts = (root) => [...root.querySelectorAll("h1, h2, p, dt, dd")].map((each) => each.textContent);
  if (!plain.isEqualNode(expected)) {
    const [found, wanted] = [texts(plain), texts(expected)];
    const at = wanted.findIndex((text, place) => text !== found[place]);
    const quote = (text) => JSON.stringify(onOneLine(text ?? "", 80));
    const what = at < 0 ? "something was added" : `${quote(found[at])} stands where the data gives ${quote(wanted[at])}`;
    return { state: "failed", title, detail: `The text in the file is not what follows from the data: ${what}.` };
  }
  if (!(await isBare(shown))) {
    const detail =
      "Something was added to this page, or what keeps other scripts out was changed. An extension of your browser can " +
      "have done it: look again without.";
    return { state: "failed", title, detail };
  }
  const detail = "The text for readers without script is what follows from the data; nothing else stands in the file.";
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

/** What came of all checks, in one sentence. */
function judge(checks) {
  const failed = checks.filter(({ state }) => state === "failed").length;
  const open = checks.filter(({ state }) => state === "open").length;
  if (failed) return ["bad", `${failed === 1 ? "A check" : `${failed} checks`} FAILED: do not rely on what this page shows.`];
  const passed = checks.length - open;
  const left = open ? `; ${open} could not be made` : "";
  return ["good", `${passed} checks passed, none failed${left}. Whose ledger it is, only a key from elsewhere shows.`];
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
  return make("section", "", make("h2", "", "What was checked in your browser"), list,
    make("h3", "", "What this proves, and what not"), make("ul", "", ...PROVES.map((text) => make("li", "", text))));
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
    const word = { passed: "same", failed: "NOT THE SAME", open: "open" }[state];
    answer.replaceChildren(make("span", `tag ${STATES[state][0]}`, word), ` ${detail}`);
  });
  const words = "A public key, a checkpoint, a root, a digest or a consistency proof that came to you by another way: ";
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
    section("Score"), section("Trial"), section("Pins"), section("Findings"), section("Said of it later"), makeTraces(shown),
    makeFiles(shown, "Verifier output", isOfVerifier), makeFiles(shown, "Other files", (path) => !isOfVerifier(path)),
    section("Evidence"),
    section("Place in the ledger", makeFolded("Checkpoint, as it is signed", shown.noteText),
      makeFolded("Entry, as it is stored", shown.line), makeFolded("Record, as it is hashed", shown.entry.at("record").raw)));
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
      "Nothing was checked: this browser lacks WebCrypto or DecompressionStream. `proctor check` checks this file.";
    return;
  }
  const found = await checkCase(data.textContent);
  if (!found.shown) {
    const title = make("h1", "", "A case file that is damaged");
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

/** Line ends between the elements of the file, which mean nothing. */
function blanksIn(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const blanks = [];
  while (walker.nextNode()) if (walker.currentNode.data === "\n") blanks.push(walker.currentNode);
  return blanks;
}

openCase();
