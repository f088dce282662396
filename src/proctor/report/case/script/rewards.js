"use strict";
// A verifier's reward file to rewards, as far as the rules are simple: one number, or an object of numbers. What harbor
// takes beyond that (nan, underscores, numbers as texts) is not read here, and the page says so.

const REWARD_JSON = "verifier/reward.json";
const REWARD_TEXT = "verifier/reward.txt";
const PLAIN_NUMBER = /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/;
const HEX_FLOAT = /^(-?)0x([01])(?:\.([0-9a-f]{1,13}))?p([+-][0-9]{1,4})$/;

/** Rewards by their names, out of the bytes of a reward file; null where the simple rules do not reach. */
function readRewards(path, bytes) {
  const text = fromUtf8(bytes);
  if (path.endsWith(".txt")) {
    const number = text.replace(/^[ \t\n\r\f\v]+|[ \t\n\r\f\v]+$/g, "");
    return PLAIN_NUMBER.test(number) && Number.isFinite(Number(number)) ? new Map([["reward", Number(number)]]) : null;
  }
  let node;
  try {
    node = parseJson(text);
  } catch {
    return null;
  }
  if (node.kind !== "object") return null;
  const rewards = new Map();
  for (const [name, value] of node.value) {
    if (value.kind !== "number" || !Number.isFinite(value.value)) return null;
    rewards.set(name, value.value);
  }
  return rewards;
}

/** The one reward there is, or the one of several that is called so; null where there is none. */
function chooseReward(rewards) {
  if (rewards.has("reward")) return rewards.get("reward");
  return rewards.size === 1 ? [...rewards.values()][0] : null;
}

/** A float as certificates spell it, to the last bit; a whole number may stand there as it is. NaN where it is none. */
function readOperand(node) {
  if (node.kind === "number") return node.value;
  const found = HEX_FLOAT.exec(node.string ?? "");
  if (!found) return NaN;
  const [, sign, lead, digits, exponent] = found;
  const fraction = parseInt((digits || "0").padEnd(13, "0"), 16) / 2 ** 52;
  const value = (Number(lead) + fraction) * 2 ** Number(exponent);
  return sign ? -value : value;
}
