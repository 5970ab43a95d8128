// Between values and bytes, and who this process is: everything of docs/protocol.md that needs no connection.

import { createHash } from "node:crypto";
import { closeSync, constants, fstatSync, openSync, readFileSync, statSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { decode, encode } from "@msgpack/msgpack";

export const WIRE_VERSION = 1;
export const Kind = Object.freeze({
  HELLO: 1, WELCOME: 2, GOODBYE: 3, LEAVING: 4, TELL: 5, CALL: 6, REPLY: 7, FAIL: 8, PUBLISH: 9, CONTROL: 10, ROUTED: 11, DONE: 12,
});
export const Priority = Object.freeze({ CONTROL: 0, TERMINAL: 1, NORMAL: 2, DROPPABLE: 3 });
export const IDEMPOTENT = 1;
export const AGAIN = 4;
export const REFERENCE = 8;
export const MAX_BODY_BYTES = 65_536;
export const MAX_REFERENCED_BYTES = 16_777_216;
export const MAX_HEADER_BYTES = 2_048;
export const MAX_BODY_DEPTH = 32;

/** An error with the protocol's code: the broker's, a peer's, or this client's own. */
export class PisubError extends Error {
  constructor(code, message, { field = null, holder = "" } = {}) {
    super(message);
    Object.assign(this, { name: "PisubError", code, field, holder });
  }
}

// An integer beyond 32 bits must leave as a msgpack integer (a float is refused), and beyond 53 bits a double would change
// it: so large ones travel as BigInt, and come back as BigInt only where a number cannot hold them.
function widen(value) {
  if (typeof value === "number") return Number.isSafeInteger(value) && Math.abs(value) >= 2 ** 31 ? BigInt(value) : value;
  return mapped(value, widen);
}

function narrow(value) {
  if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  return mapped(value, narrow);
}

function mapped(value, change) {
  if (Array.isArray(value)) return value.map(change);
  if (value === null || typeof value !== "object" || value instanceof Uint8Array) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, change(each)]));
}

/** Encode a body or header; keys that are undefined are left out. */
export function toBytes(value) {
  return encode(widen(value), { useBigInt64: true, ignoreUndefined: true, maxDepth: MAX_BODY_DEPTH + 1 });
}

export function fromBytes(bytes) {
  return narrow(decode(bytes, { useBigInt64: true }));
}

/** Encode a body, and check its size: ZeroMQ would drop an oversized frame without a word. */
export function bodyBytes(body) {
  const bytes = body === null ? new Uint8Array() : toBytes(body);
  if (bytes.length > MAX_BODY_BYTES) throw new PisubError("too_large", `A body of ${bytes.length} bytes exceeds ${MAX_BODY_BYTES}.`);
  return bytes;
}

export function pack(kind, body, { priority = Priority.NORMAL, id = 0, correlation = 0, scope = "", topic = "", to = "", fence = null, ttlMs = 0, flags = 0 }) {
  const header = toBytes([kind, priority, id, correlation, scope, topic, to, fence, ttlMs, flags]);
  if (header.length > MAX_HEADER_BYTES) throw new PisubError("too_large", `A header of ${header.length} bytes exceeds ${MAX_HEADER_BYTES}.`);
  return Buffer.concat([Buffer.from("psb"), Buffer.from([WIRE_VERSION, header.length >> 8, header.length & 255]), header, body]);
}

/** Take a message of the broker's apart; throws where it is none. */
export function unpack([stampFrame, frame], directory) {
  const length = frame.readUInt16BE(4);
  if (frame.subarray(0, 3).toString("latin1") !== "psb" || frame[3] !== WIRE_VERSION || 6 + length > frame.length) throw new Error("no frame of this version");
  const [kind, priority = Priority.NORMAL, id = 0, correlation = 0, scope = "", topic = "", to = "", , ttlMs = 0, flags = 0] = fromBytes(frame.subarray(6, 6 + length));
  const [address = "", incarnation = 0, authority = 0, epoch = "", dropped = 0] = fromBytes(stampFrame);
  let body = (frame.length > 6 + length && fromBytes(frame.subarray(6 + length))) || {};
  if (flags & REFERENCE) body = fromBytes(referencedBody(directory, body));
  return { kind, priority, id, correlation, scope, topic, to, ttlMs, flags, body, sender: { address, incarnation, authority }, epoch, dropped };
}

/** Read the file that a `pisub:body` stands for; throws where it is not there, or not what the message says. */
function referencedBody(directory, { name, bytes, sha256 }) {
  if (!/^[1-9][0-9]{0,9}-[0-9]{1,20}-[0-9a-f]{8}-[0-9a-f]{16}$/.test(name) || !(bytes <= MAX_REFERENCED_BYTES)) throw new Error("no reference to a body");
  const file = openSync(join(directory, "bodies", name), constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const { uid, size } = fstatSync(file);
    const body = uid === process.getuid() && size === bytes ? readFileSync(file) : Buffer.alloc(0);
    if (createHash("sha256").update(body).digest("hex") !== sha256) throw new Error("not the body that the message names");
    return body;
  } finally {
    closeSync(file);
  }
}

const text = (path) => {
  try {
    return readFileSync(path, "ascii").trim();
  } catch {
    return "";
  }
};

function stat(pid) {
  const line = text(`/proc/${pid}/stat`);
  const fields = line.slice(line.lastIndexOf(")") + 2).split(" "); // the command name may hold spaces: begin after it
  return line ? { state: fields[0], startTicks: Number(fields[19]) } : null;
}

/** The identity of this process. */
export function ownProcess() {
  return {
    pid: process.pid,
    startTicks: stat("self")?.startTicks ?? 0,
    bootId: text("/proc/sys/kernel/random/boot_id"),
    machineId: text("/etc/machine-id") || text("/var/lib/dbus/machine-id") || hostname(),
    pidNamespace: statSync("/proc/self/ns/pid", { throwIfNoEntry: false })?.ino ?? 0,
  };
}

/** Whether a process is certainly gone; where that cannot be known it is not. */
export function isDead({ pid, startTicks = 0, bootId = "", machineId = "", pidNamespace = 0 }) {
  const own = ownProcess();
  if (machineId !== own.machineId) return false;
  if (bootId !== own.bootId) return true;
  if (pidNamespace !== own.pidNamespace || startTicks === 0) return false;
  const found = stat(pid);
  return found === null || "ZXx".includes(found.state) || found.startTicks !== startTicks;
}

/** Where the broker's socket and broker.json lie. */
export function runtimeDirectory(environment = process.env) {
  const { PISUB_RUNTIME_DIR: own, XDG_RUNTIME_DIR: session } = environment;
  const wanted = own ? resolve(own) : session ? join(session, "pisub") : join(tmpdir(), `pisub-${process.getuid()}`);
  if (Buffer.byteLength(wanted) <= 58) return wanted;
  return `/tmp/pisub-${process.getuid()}-${createHash("sha256").update(wanted).digest("hex").slice(0, 16)}`;
}

/** The content of broker.json, or null where no broker runs. */
export function findBroker(directory) {
  try {
    const info = JSON.parse(readFileSync(join(directory, "broker.json"), "utf8"));
    return isDead(info.process) ? null : info;
  } catch {
    return null;
  }
}
