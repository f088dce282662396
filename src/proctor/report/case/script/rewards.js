"use strict";
// Reward files to rewards, and the steps of a trial to its rewards, as harbor does it. A whole number is a BigInt and any
// other a Number, because 1 is not 1.0 there. What this cannot read as harbor would is an Error, never a guess.

const REWARD_JSON = "verifier/reward.json";
const REWARD_TEXT = "verifier/reward.txt";
const LONGEST_WHOLE = 4300;
const DIGITS = "[0-9]+(?:_[0-9]+)*";
const FLOAT = new RegExp(`^[+-]?(?:${DIGITS}\\.?(?:${DIGITS})?|\\.${DIGITS})(?:[eE][+-]?${DIGITS})?$`);
const ODD_FLOAT = /^([+-]?)(?:(inf|infinity)|nan)$/i;
const HEX_FLOAT = /^(-?)0x([01])\.([0-9a-f]{1,13})p([+-](?:0|[1-9][0-9]{0,3}))$/;
const HEX_ODD = { nan: NaN, inf: Infinity, "-inf": -Infinity };
const IN_STEP = /^steps\/(.+)\/verifier\/reward\.(?:json|txt)$/s;
const NO_REWARD_FILE = "the evidence has no reward file in verifier/";

/** What the files of a case give: a list of {source, rewards}, one for each way that harbor has; rewards is null where
 * there are none. A text says why the files do not give anything. */
function deriveRewards(shown) {
  const paths = shown.evidence.map(({ path }) => path);
  const twice = paths.find((path, at) => paths.indexOf(path) !== at);
  if (twice !== undefined) return `the entry names ${onOneLine(twice)} more than once`;
  const result = readResult(shown);
  const path = findRewardFile(shown, "verifier");
  const excuse = result && findExcuse(result, result);
  if (excuse) return [{ source: excuse, rewards: null }];
  const steps = paths.map((each) => IN_STEP.exec(each)?.[1]).filter((name) => name !== undefined);
  if (!path && (steps.length || (result && !result.at("step_results").isNothing))) return deriveSteps(shown, result, steps);
  if (!path) return NO_REWARD_FILE;
  const bytes = bytesOf(shown, path);
  return bytes ? [{ source: path, rewards: readRewards(path, bytes, profileOf(shown)) }] : `${path} is not in the page`;
}

/** The trial's result.json, where it is in the page and can be read in one way only. */
function readResult(shown) {
  const bytes = bytesOf(shown, "result.json");
  try {
    return bytes ? parseJson(strictUtf8(bytes)) : null;
  } catch {
    return null;
  }
}

/** Why a trial or a step has no rewards although a reward file may be there; null where it has some. */
function findExcuse(result, part) {
  if (result.at("config", "verifier", "disable").raw === "true") {
    return "result.json says that verification was disabled, so there is no reward";
  }
  const isExcused = !part.at("exception_info").isNothing && part.at("verifier_result").isNothing;
  return isExcused ? "result.json records an exception and no verifier result, so there is no reward" : null;
}

function deriveSteps(shown, result, found) {
  if (!result) return "result.json, which lists the steps, is missing in the page or unreadable";
  const steps = result.at("step_results").items;
  const names = steps.map((step) => step.at("step_name").string);
  if (new Set(names).size < names.length) return "two steps have the same name and share their files";
  const missing = found.find((name) => !names.includes(name));
  if (missing !== undefined) return `steps/${onOneLine(missing)} has a reward file, and result.json lists no such step`;
  const verdicts = [];
  for (const [at, step] of steps.entries()) {
    if (findExcuse(result, step)) {
      verdicts.push(null);
      continue;
    }
    const path = findRewardFile(shown, `steps/${names[at]}/verifier`);
    const bytes = path && bytesOf(shown, path);
    if (!bytes) return `the reward file of step ${onOneLine(String(names[at]))} is not in the page`;
    verdicts.push(readRewards(path, bytes, profileOf(shown)) ?? new Map());
  }
  return [
    { source: "the mean of the steps' reward files", rewards: meanOf(verdicts.filter((each) => each !== null)) },
    { source: "the last step's reward file", rewards: verdicts.at(-1) ?? null },
  ];
}

/** The reward file of a folder that decides: reward.json where it is, else reward.txt. */
function findRewardFile(shown, folder) {
  const wanted = [`${folder}/reward.json`, `${folder}/reward.txt`];
  return wanted.find((path) => shown.evidence.some((each) => each.path === path));
}

function bytesOf(shown, path) {
  return shown.files.get(shown.evidence.find((each) => each.path === path)?.sha256);
}

function profileOf(shown) {
  return shown.entry.at("score", "profile").string;
}

function strictUtf8(bytes) {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** Rewards by their names, out of the bytes of a reward file; null where it gives none. */
function readRewards(path, bytes, profile = null) {
  const refusesOdd = profile === "harbor-0.25";
  let text;
  try {
    text = strictUtf8(bytes);
  } catch {
    return null;
  }
  if (path.endsWith(".txt")) {
    const value = parseFloatText(text);
    return value === null || (refusesOdd && !Number.isFinite(value)) ? null : new Map([["reward", value]]);
  }
  let node;
  try {
    node = parseJson(text, true);
  } catch {
    return null;
  }
  if (node.kind !== "object") return null;
  const values = [...node.value].map(([name, value]) => [name, readReward(value, refusesOdd)]);
  return values.some(([, value]) => value === null) ? null : new Map(values);
}

function readReward(node, refusesOdd) {
  if (node.kind === "boolean") return Number(node.value);
  if (node.kind === "string") return refusesOdd ? null : parseQuoted(node.value);
  if (node.kind !== "number") return null;
  if (!/^-?[0-9]+$/.test(node.raw)) return refusesOdd && !Number.isFinite(looseValue(node)) ? null : looseValue(node);
  return node.raw.replace("-", "").length > LONGEST_WHOLE ? null : BigInt(node.raw);
}

function looseValue(node) {
  return node.raw === "NaN" ? NaN : Number(node.raw);
}

/** A number in a text of reward.json, as pydantic reads it: like float(), but with rules of its own for underscores. */
function parseQuoted(text) {
  const value = parseFloatText(text);
  if (value !== null && text.includes("_")) throw unreadable(text);
  return value;
}

function unreadable(text) {
  const shown = JSON.stringify(onOneLine(text, 80));
  return new Error(`the reward ${shown} is spelled in a way that this page does not read; \`proctor check\` does`);
}

/** A number as Python's float() reads it; null where it is none. */
function parseFloatText(text) {
  const number = text.replace(/^[ \t\n\r\f\v]+|[ \t\n\r\f\v]+$/g, "");
  if (FLOAT.test(number)) return Number(number.replaceAll("_", ""));
  const odd = ODD_FLOAT.exec(number);
  if (odd) return odd[2] ? (odd[1] === "-" ? -Infinity : Infinity) : NaN;
  // float() takes any decimal digits and any white space of Unicode, of which a byte order mark is none.
  const ascii = text.replace(/\p{Nd}/gu, "1").replace(/^(?:[^\S\ufeff]|\u0085)+|(?:[^\S\ufeff]|\u0085)+$/g, "");
  if (FLOAT.test(ascii) || ODD_FLOAT.test(ascii)) throw unreadable(text);
  return null;
}

/** The mean of the steps' rewards by name; a reward that a step has not got counts as 0. */
function meanOf(verdicts) {
  const names = new Set(verdicts.flatMap((rewards) => [...rewards.keys()]));
  if (!names.size) return null;
  const mean = (name) => {
    const total = exactSum(verdicts.map((rewards) => rewards.get(name) ?? 0n));
    if (typeof total === "bigint" && !Number.isSafeInteger(Number(total))) throw new Error("the steps' rewards are too large to add");
    return Number(total) / verdicts.length;
  };
  return new Map([...names].map((name) => [name, mean(name)]));
}

/** The sum that CPython 3.12 gives: whole numbers exactly up to the first float, from there on floats with Neumaier's
 * compensation; a whole number beyond 64 bits ends both. */
function exactSum(values) {
  const fits = (value) => BigInt.asIntN(64, value) === value;
  const add = (one, other) =>
    typeof one === "bigint" && typeof other === "bigint" ? one + other : Number(one) + Number(other);
  let total = 0n;
  let correction = 0;
  let isFolding = false;
  const corrected = () => (correction && Number.isFinite(correction) ? total + correction : total);
  for (const item of values) {
    if (isFolding) {
      total = add(total, item);
    } else if (typeof total === "bigint") {
      total = add(total, item);
      isFolding = typeof item === "bigint" && !(fits(item) && fits(total));
    } else if (typeof item === "number") {
      const larger = total + item;
      correction += Math.abs(total) >= Math.abs(item) ? total - larger + item : item - larger + total;
      total = larger;
    } else if (fits(item)) {
      total += Number(item);
    } else {
      total = corrected() + Number(item);
      [correction, isFolding] = [0, true];
    }
  }
  return corrected();
}

/** The one reward there is, or the one of several that is called so; null where there is none that a record can hold. */
function chooseReward(rewards) {
  const chosen = rewards.has("reward") ? rewards.get("reward") : rewards.size === 1 ? [...rewards.values()][0] : NaN;
  return Number.isFinite(Number(chosen)) ? Number(chosen) : null;
}

/** A number as certificates spell it, to the last bit; undefined where it is none. */
function readOperand(node) {
  if (node.kind === "number") return /^-?[0-9]+$/.test(node.raw) ? BigInt(node.raw) : undefined;
  if (Object.hasOwn(HEX_ODD, node.string ?? "")) return HEX_ODD[node.string];
  const found = HEX_FLOAT.exec(node.string ?? "");
  if (!found) return undefined;
  const [, sign, lead, digits, exponent] = found;
  const fraction = parseInt(digits.padEnd(13, "0"), 16) / 2 ** 52;
  const value = (Number(lead) + fraction) * 2 ** Number(exponent);
  return sign ? -value : value;
}

/** A reward of a record's breakdown; a float that no record can hold stands there by its name. */
function isInBreakdown(node, value) {
  if (node.kind === "string") {
    const name = Number.isNaN(value) ? "nan" : `${value}`.replace("Infinity", "inf");
    return !Number.isFinite(Number(value)) && node.value === name;
  }
  if (node.kind !== "number") return false;
  const stated = /^-?[0-9]+$/.test(node.raw) ? BigInt(node.raw) : node.value;
  // A whole number and a float are compared by what they are worth.
  return stated == value;
}
