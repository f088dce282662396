"use strict";
// Whether an Ed25519 signature is right: by the browser itself, and where it does not know Ed25519 by RFC 8032 in numbers.

const P = 2n ** 255n - 19n;
const ORDER = 2n ** 252n + 27742317777372353535851937790883648493n;

/** Whether a public key (32 bytes) made a signature (64 bytes) over a message. */
async function isSigned(publicKey, message, signature) {
  if (publicKey.length !== 32 || signature.length !== 64) return false;
  let key;
  try {
    key = await crypto.subtle.importKey("raw", publicKey, { name: "Ed25519" }, false, ["verify"]);
  } catch {
    return isSignedByNumbers(publicKey, message, signature);
  }
  return crypto.subtle.verify("Ed25519", key, signature, message);
}

/** The same without the browser's own Ed25519: R must be S·B − k·A, to the byte. */
async function isSignedByNumbers(publicKey, message, signature) {
  const s = toNumber(signature.subarray(32));
  const a = readPoint(publicKey);
  if (a === null || s >= ORDER) return false;
  const hashed = await crypto.subtle.digest("SHA-512", joinBytes(signature.subarray(0, 32), publicKey, message));
  const k = toNumber(new Uint8Array(hashed)) % ORDER;
  const minusA = [modulo(-a[0]), a[1], a[2], modulo(-a[3])];
  const r = addPoints(multiplyPoint(s, basePoint()), multiplyPoint(k, minusA));
  return isSame(writePoint(r), signature.subarray(0, 32));
}

function modulo(value) {
  const rest = value % P;
  return rest < 0n ? rest + P : rest;
}

function power(base, exponent) {
  let result = 1n;
  for (let square = modulo(base); exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = modulo(result * square);
    square = modulo(square * square);
  }
  return result;
}

function curveD() {
  return modulo(-121665n * power(121666n, P - 2n));
}

/** Little-endian bytes as a number. */
function toNumber(bytes) {
  return BigInt(`0x${toHex(Uint8Array.from(bytes).reverse())}`);
}

/** A point in the 32 bytes of RFC 8032, as X, Y, Z, T; null where there is none. */
function readPoint(bytes) {
  const number = toNumber(bytes);
  const y = number & (2n ** 255n - 1n);
  if (y >= P) return null;
  const x = findX(y, number >> 255n);
  return x === null ? null : [x, y, 1n, modulo(x * y)];
}

function findX(y, sign) {
  const squared = modulo((y * y - 1n) * power(curveD() * y * y + 1n, P - 2n));
  if (squared === 0n) return sign ? null : 0n;
  let x = power(squared, (P + 3n) / 8n);
  if (modulo(x * x - squared) !== 0n) x = modulo(x * power(2n, (P - 1n) / 4n));
  if (modulo(x * x - squared) !== 0n) return null;
  return (x & 1n) === sign ? x : P - x;
}

function writePoint([x, y, z]) {
  const inverse = power(z, P - 2n);
  let number = modulo(y * inverse) | ((modulo(x * inverse) & 1n) << 255n);
  const bytes = new Uint8Array(32);
  for (let at = 0; at < 32; at += 1) {
    bytes[at] = Number(number & 255n);
    number >>= 8n;
  }
  return bytes;
}

function basePoint() {
  const y = modulo(4n * power(5n, P - 2n));
  const x = findX(y, 0n);
  return [x, y, 1n, modulo(x * y)];
}

function addPoints([x1, y1, z1, t1], [x2, y2, z2, t2]) {
  const a = modulo((y1 - x1) * (y2 - x2));
  const b = modulo((y1 + x1) * (y2 + x2));
  const c = modulo(2n * t1 * t2 * curveDOnce());
  const d = modulo(2n * z1 * z2);
  const [e, f, g, h] = [b - a, d - c, d + c, b + a];
  return [modulo(e * f), modulo(g * h), modulo(f * g), modulo(e * h)];
}

let knownD = null;

function curveDOnce() {
  knownD ??= curveD();
  return knownD;
}

function multiplyPoint(scalar, point) {
  let sum = [0n, 1n, 1n, 0n];
  for (let doubled = point; scalar > 0n; scalar >>= 1n) {
    if (scalar & 1n) sum = addPoints(sum, doubled);
    doubled = addPoints(doubled, doubled);
  }
  return sum;
}
