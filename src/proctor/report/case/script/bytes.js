"use strict";
// Bytes as text and back, what was packed, and SHA-256. Plain functions: a page takes the files that it needs.

const encoder = new TextEncoder();

/** Text as UTF-8. */
function toUtf8(text) {
  return encoder.encode(text);
}

/** UTF-8 as text; what is none becomes U+FFFD. */
function fromUtf8(bytes) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** Bytes as lower-case hex digits. */
function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Lower-case hex digits as bytes; null where they are none. */
function fromHex(text) {
  if (!/^([0-9a-f]{2})*$/.test(text)) return null;
  return Uint8Array.from(text.match(/../g) || [], (pair) => parseInt(pair, 16));
}

/** Bytes as base64. */
function toBase64(bytes) {
  if (bytes.toBase64) return bytes.toBase64();
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(text);
}

/** Base64 as bytes; null where it is none, or could have been written in another way. */
function fromBase64(text) {
  try {
    if (Uint8Array.fromBase64) {
      if (/[^A-Za-z0-9+/=]/.test(text)) return null;
      return Uint8Array.fromBase64(text, { lastChunkHandling: "strict" });
    }
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return toBase64(bytes) === text ? bytes : null;
  } catch {
    return null;
  }
}

/** Several pieces as one. */
function joinBytes(...pieces) {
  const joined = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    joined.set(piece, at);
    at += piece.length;
  }
  return joined;
}

/** Whether two pieces are the same. */
function isSame(one, other) {
  return one.length === other.length && one.every((byte, at) => byte === other[at]);
}

/** SHA-256 of bytes. */
async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

/** The bytes in a zlib stream, which must be `size`; null where they are not. Never unpacks more. */
async function inflate(packed, size) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const reader = stream.getReader();
  const plain = new Uint8Array(size);
  let at = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return at === size ? plain : null;
      if (at + value.length > size) {
        await reader.cancel();
        return null;
      }
      plain.set(value, at);
      at += value.length;
    }
  } catch {
    return null;
  }
}
