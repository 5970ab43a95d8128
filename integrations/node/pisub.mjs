// A client of pisub's broker, written from docs/protocol.md: hello, calls both ways, topics, roles, watches, reconnect.
// It does not start a broker: `pisub broker start` does.

import { setTimeout as delay } from "node:timers/promises";

import { Dealer } from "zeromq";

import { AGAIN, IDEMPOTENT, Kind, Priority, PisubError, WIRE_VERSION, bodyBytes, findBroker, ownProcess, pack, runtimeDirectory, unpack } from "./wire.mjs";

export { Kind, Priority, PisubError };

const HIGH_WATER_MARK = 256;
const WELCOME_TIMEOUT_MS = 1_000;
const SEARCH_AFTER_MS = 1_000;
const MAX_KEPT_ANSWERS = 4_096;
const MAX_OPEN_CALLS = 16_384;
const ACKNOWLEDGE_AFTER_MS = 1_000;
const RETRY_MS = 5; // no event says that a full pipe has room again
const key = (...parts) => JSON.stringify(parts.map(String));

export class Client {
  address; session; epoch = ""; authority = 0;
  incarnation = BigInt(Date.now()) * 1_000_000n + (process.hrtime.bigint() % 1_000_000n);
  /** Messages that nobody here could use. */
  ignored = 0;
  #socket = null; #phase = "offline"; #helloId = 0; #isHelloDue = false; #isDialling = false; #isPumping = false;
  #lastId = 0; #outbox = []; #calls = new Map(); #lives = new Map(); #timers = {};
  #claims = new Map(); #subscriptions = new Map(); #watches = new Map();
  #callHandlers = new Map(); #tellHandlers = new Map(); #listeners = { role: [], state: [] };
  #answers = new Map(); #arrived = new Map();
  #ready = deferred();

  /** Use `Client.connect`. */
  constructor({ kind = "client", address = "", session = "", directory = runtimeDirectory() }) {
    Object.assign(this, { kind, address, session, directory });
  }

  /** Connect; waits for a broker for `waitMs`, and says so when there is none. */
  static async connect({ waitMs = 5_000, ...options } = {}) {
    const client = new Client(options);
    const none = new PisubError("broker_unavailable", `No broker serves ${client.directory}. Start one: pisub broker start`);
    client.#timers.wait = setTimeout(() => client.#ready.reject(none), waitMs);
    client.#dial();
    try {
      await client.#ready.promise;
    } catch (error) {
      await client.close();
      throw error;
    } finally {
      clearTimeout(client.#timers.wait);
    }
    return client;
  }

  get isConnected() { return this.#phase === "online"; }

  // Messages to others ------------------------------------------------------------------------------------------------

  /** Ask `role:<name>` or an address; resolves to the body of its one answer. */
  call(to, body, { scope = "", timeoutMs = 0, idempotent = false, fenceOf = null } = {}) {
    const flags = idempotent ? IDEMPOTENT : 0;
    return this.#request({ kind: Kind.CALL, to, scope, flags, fenceOf }, body, { timeoutMs, isRepeatable: idempotent });
  }

  tell(to, body, { scope = "", priority = Priority.NORMAL, fenceOf = null } = {}) {
    this.#post({ kind: Kind.TELL, to, scope, priority, fenceOf, id: this.#nextId(), bytes: bodyBytes(body) });
  }

  publish(topic, body, { scope = "", to = "", priority = Priority.NORMAL } = {}) {
    this.#post({ kind: Kind.PUBLISH, topic, to, scope, priority, id: this.#nextId(), bytes: bodyBytes(body) });
  }

  /** Answer calls of one message type: `handler(body, sender)` returns the answer's body, or throws. */
  serve(type, handler) { this.#callHandlers.set(type, handler); }

  onTell(type, handler) { this.#tellHandlers.set(type, handler); }

  /** Told of `{role, scope, generation}` whenever a role is held under a new number. */
  onRole(handler) { this.#listeners.role.push(handler); }

  /** Told "connected", "disconnected", "resync" (files may have changed unseen: read them again). */
  onState(handler) { this.#listeners.state.push(handler); }

  // Requests to the broker --------------------------------------------------------------------------------------------

  /** Ask the broker itself, e.g. `{type: "status"}`. */
  control(body, { timeoutMs = 5_000 } = {}) {
    return this.#request({ kind: Kind.CONTROL, priority: Priority.CONTROL }, body, { timeoutMs, isRepeatable: body.type !== "shutdown" });
  }

  status() { return this.control({ type: "status" }); }

  findRole(role, scope = "") { return this.control({ type: "find-role", role, scope }); }

  /** Claim a role; it is claimed again from the next broker. */
  async claim(role, scope = "", { wait = false, recordN = 0 } = {}) {
    const claim = { role, scope, wait, recordN, generation: 0, isAnswered: false };
    this.#claims.set(key(role, scope), claim);
    try {
      const answer = await this.control({ type: "claim", role, scope, wait, recordN });
      claim.isAnswered = true;
      claim.generation ||= answer.generation; // role-granted may have come first
      return answer;
    } catch (error) {
      this.#claims.delete(key(role, scope));
      throw error;
    }
  }

  async release(role, scope = "") {
    this.#claims.delete(key(role, scope));
    await this.control({ type: "release", role, scope });
  }

  /** `handler({topic, scope, sender, body, dropped})` for what is published on `topic`, or with `isPrefix` below it. */
  async subscribe(topic, handler, { isPrefix = false, scope = "" } = {}) {
    const wanted = { topic, isPrefix, scope };
    this.#subscriptions.set(key(topic, isPrefix, scope), { ...wanted, handler });
    await this.control({ type: "subscribe", ...wanted });
    return async () => {
      this.#subscriptions.delete(key(topic, isPrefix, scope));
      await this.control({ type: "unsubscribe", ...wanted });
    };
  }

  /** `handler(terminated)` once, when the address goes or is not there. */
  async watch(address, handler) {
    const watch = { handler, incarnation: 0 };
    this.#watches.set(address, watch);
    watch.incarnation = (await this.control({ type: "watch", address })).incarnation ?? 0;
  }

  /** Say goodbye and leave. Open calls end with `client_closed`. */
  async close() {
    if (this.#phase === "closed") return;
    const wasOnline = this.#phase === "online";
    this.#acknowledge();
    if (wasOnline) this.#post({ kind: Kind.GOODBYE, priority: Priority.CONTROL, id: this.#nextId(), bytes: bodyBytes(null) });
    for (let tries = 0; wasOnline && this.#outbox.length && tries < 100; tries += 1) await delay(RETRY_MS);
    this.#phase = "closed";
    Object.values(this.#timers).forEach(clearTimeout);
    for (const id of [...this.#calls.keys()]) this.#end(id, new PisubError("client_closed", "The client was closed."));
    if (this.#socket) this.#socket.linger = 100;
    this.#hangUp();
  }

  // The connection ----------------------------------------------------------------------------------------------------

  async #dial() {
    if (this.#isDialling || this.#phase === "closed") return;
    this.#isDialling = true;
    this.#goOffline();
    this.#hangUp();
    let info = null;
    while (this.#phase !== "closed" && (info = findBroker(this.directory)) === null) await delay(50);
    this.#isDialling = false;
    if (this.#phase === "closed") return;
    const socket = new Dealer({
      immediate: false, reconnectInterval: 20, linger: 0, sendTimeout: 0,
      sendHighWaterMark: HIGH_WATER_MARK, receiveHighWaterMark: HIGH_WATER_MARK,
    });
    this.#socket = socket;
    socket.events.on("handshake", () => this.#socket === socket && this.#greet());
    socket.events.on("disconnect", () => this.#socket === socket && this.#goOffline());
    this.#setTimer("search", SEARCH_AFTER_MS);
    socket.connect(info.address);
    this.#receive(socket);
  }

  #hangUp() {
    this.#socket?.close();
    this.#socket = null;
  }

  #setTimer(name, afterMs) {
    clearTimeout(this.#timers[name]);
    this.#timers[name] = setTimeout(() => this.#dial(), afterMs);
  }

  #goOffline() {
    if (this.#phase === "closed") return;
    clearTimeout(this.#timers.welcome);
    this.#setTimer("search", SEARCH_AFTER_MS);
    const wasOnline = this.#phase === "online";
    this.#phase = "offline";
    if (wasOnline) this.#announce("state", "disconnected");
  }

  #greet() {
    clearTimeout(this.#timers.search);
    this.#setTimer("welcome", WELCOME_TIMEOUT_MS);
    this.#phase = "greeting";
    this.#isHelloDue = true;
    this.#pump();
  }

  #hello() {
    this.#helloId = this.#nextId();
    const held = [...this.#claims.values()].filter((claim) => claim.generation || (claim.isAnswered && claim.wait));
    const body = {
      type: "hello", wireVersions: [WIRE_VERSION], kind: this.kind, address: this.address, incarnation: this.incarnation,
      process: ownProcess(), session: this.session, software: "pisub.mjs",
      roles: held.map(({ role, scope, generation, recordN }) => ({ role, scope, generation, recordN })),
      subscriptions: [...this.#subscriptions.values()].map(({ topic, isPrefix, scope }) => ({ topic, isPrefix, scope })),
      watches: [...this.#watches].map(([address, { incarnation }]) => (incarnation ? `${address}@${incarnation}` : address)),
    };
    return pack(Kind.HELLO, bodyBytes(body), { priority: Priority.CONTROL, id: this.#helloId });
  }

  #welcomed({ address, epoch, authority = 0, roles = [], resync = false }) {
    clearTimeout(this.#timers.welcome);
    const isFirst = this.epoch === "";
    const isNew = epoch !== this.epoch;
    Object.assign(this, { address, epoch, authority });
    this.#phase = "online";
    const again = [];
    for (const [id, call] of this.#calls) {
      if (!call.isSent) continue;
      const to = call.boundTo || (this.#lives.has(call.to) ? `${call.to}@${this.#lives.get(call.to)}` : "");
      if (to || call.isRepeatable) again.push(Object.assign(call, { to: to || call.to, isResent: true }));
      else this.#end(id, new PisubError("outcome_unknown", "The broker was lost before it said who has the call."));
    }
    this.#outbox = [...again, ...this.#outbox.filter((each) => !each.isSent)];
    for (const claim of this.#claims.values()) {
      const generation = roles.find((each) => each.role === claim.role && (each.scope ?? "") === claim.scope)?.generation ?? 0;
      const isChanged = generation !== 0 && (isNew || generation !== claim.generation);
      claim.generation = generation;
      if (isChanged) this.#announce("role", { role: claim.role, scope: claim.scope, generation });
      if (generation === 0 && claim.isAnswered) this.#claimAgain(claim);
    }
    this.#ready.resolve();
    this.#announce("state", "connected");
    if (resync || (isNew && !isFirst)) this.#announce("state", "resync");
    this.#pump();
  }

  async #claimAgain({ role, scope, wait, recordN }) {
    try {
      this.#granted(await this.control({ type: "claim", role, scope, wait, recordN }));
    } catch {
      // another holds it now; the next broker is asked again
    }
  }

  #granted({ role, scope = "", generation = 0 }) {
    const claim = this.#claims.get(key(role, scope));
    if (!claim || !generation || claim.generation === generation) return;
    Object.assign(claim, { generation, isAnswered: true });
    this.#announce("role", { role, scope, generation });
  }

  // Sending -----------------------------------------------------------------------------------------------------------

  #nextId() { return (this.#lastId += 1); }

  async #request(header, body, { timeoutMs, isRepeatable }) {
    if (this.#phase === "closed") throw new PisubError("client_closed", "The client is closed.");
    if (this.#calls.size >= MAX_OPEN_CALLS) throw new PisubError("too_many_calls", `${MAX_OPEN_CALLS} calls are open.`);
    const call = { ...header, id: this.#nextId(), bytes: bodyBytes(body), isRepeatable, boundTo: "", deadline: timeoutMs ? Date.now() + timeoutMs : 0, ...deferred() };
    this.#calls.set(call.id, call);
    const late = () => this.#end(call.id, new PisubError("call_timeout", `No reply from ${call.to || "the broker"} in time.`));
    if (timeoutMs) call.timer = setTimeout(late, timeoutMs);
    this.#post(call);
    return call.promise;
  }

  #post(message) {
    this.#outbox.push(message);
    this.#pump();
  }

  #frame(message) {
    const claim = message.fenceOf ? this.#claims.get(key(...message.fenceOf)) : null;
    const fence = message.fenceOf ? [this.epoch, claim?.generation ?? 0] : null; // 0 is nobody's: the broker refuses it
    const ttlMs = message.deadline ? Math.max(1, message.deadline - Date.now()) : 0;
    return pack(message.kind, message.bytes, { ...message, fence, ttlMs });
  }

  async #pump() {
    if (this.#isPumping) return;
    this.#isPumping = true;
    try {
      while (this.#isHelloDue || (this.#phase === "online" && this.#outbox.length)) {
        const message = this.#isHelloDue ? null : Object.assign(this.#outbox.shift(), { isSent: true });
        this.#isHelloDue = false;
        if (await this.#send(message ? this.#frame(message) : this.#hello())) continue;
        if (message) this.#outbox.unshift(Object.assign(message, { isSent: message.isResent ?? false }));
        else this.#isHelloDue = true;
        this.#timers.retry = setTimeout(() => this.#pump(), RETRY_MS);
        break;
      }
    } finally {
      this.#isPumping = false;
    }
  }

  /** Hand a frame to ZeroMQ; false when there is no room, or no connection any more. */
  async #send(frame) {
    try {
      await this.#socket.send(frame);
      return true;
    } catch (error) {
      if (error.code !== "EAGAIN" && this.#socket?.closed === false) throw error;
      return false;
    }
  }

  // Receiving ---------------------------------------------------------------------------------------------------------

  async #receive(socket) {
    try {
      for await (const frames of socket) this.#take(frames);
    } catch (error) {
      if (this.#socket === socket) throw error;
    }
  }

  #take(frames) {
    let message;
    try {
      message = unpack(frames, this.directory);
    } catch {
      this.ignored += 1; // what does not decode is dropped
      return;
    }
    if (message.dropped) this.#announce("state", "resync");
    if (message.sender.address) this.#fromPeer(message);
    else this.#fromBroker(message);
  }

  #fromBroker({ kind, correlation, to, flags, body }) {
    if (kind === Kind.WELCOME) this.#welcomed(body);
    else if (kind === Kind.REPLY) this.#end(correlation, null, body);
    else if (kind === Kind.LEAVING) this.#dial();
    else if (kind === Kind.ROUTED) for (const id of [correlation, ...(body.messageIds ?? [])]) this.#routed(id, to, (flags & AGAIN) !== 0);
    else if (kind === Kind.TELL && body.type === "role-granted") this.#granted(body);
    else if (kind === Kind.TELL && body.type === "terminated") this.#terminated(body);
    else if (kind === Kind.FAIL && body.code === "hello_first") this.#phase === "online" && this.#greet();
    else if (kind === Kind.FAIL && correlation === this.#helloId) this.#ready.reject(new PisubError(body.code, body.message, body));
    else if (kind === Kind.FAIL) this.#fail(correlation, body);
  }

  // Again: the callee's connection broke, and the call may be lost with it. A callee that has it ignores the second.
  #routed(id, to, isAgain) {
    const call = this.#calls.get(id);
    if (call) call.boundTo ||= to;
    if (!isAgain) return;
    if (call?.isSent) this.#post(Object.assign(call, { to: call.boundTo, isResent: true }));
    else if (!call) this.#post({ kind: Kind.DONE, priority: Priority.TERMINAL, id: this.#nextId(), correlation: id, to, bytes: bodyBytes({ type: "arrived", messageIds: [id] }) });
  }

  #terminated({ address, incarnation = 0, reason }) {
    const watch = this.#watches.get(address);
    if (!watch || (watch.incarnation && incarnation && watch.incarnation !== incarnation)) return;
    this.#watches.delete(address);
    this.#guard(watch.handler, { address, incarnation, reason });
  }

  #fail(id, { code, message, field, holder }) {
    // "not delivered" speaks of the last sending only: the one before the reconnect may have arrived.
    const isUnsure = code === "not_delivered" && this.#calls.get(id)?.isResent;
    this.#end(id, new PisubError(isUnsure ? "outcome_unknown" : code, message, { field, holder }));
  }

  #end(id, error, body = {}) {
    const call = this.#calls.get(id);
    if (!call) return;
    this.#calls.delete(id);
    clearTimeout(call.timer);
    if (!call.isSent) this.#outbox = this.#outbox.filter((each) => each !== call);
    if (error) call.reject(error);
    else call.resolve(body);
  }

  #fromPeer(message) {
    const { kind, correlation, sender, topic, to, body } = message;
    if (kind === Kind.CALL) this.#answer(message);
    else if (kind === Kind.TELL) this.#told(message);
    else if (kind === Kind.DONE) for (const id of body.messageIds ?? []) this.#answers.delete(key(sender.address, sender.incarnation, id));
    else if (kind === Kind.PUBLISH || (topic && to.split("@")[0] !== this.address)) this.#published(message); // or a reply to another, observed
    else if (kind === Kind.REPLY || kind === Kind.FAIL) {
      this.#lives.set(sender.address, sender.incarnation);
      this.#noteArrived(`${sender.address}@${sender.incarnation}`, correlation);
      if (kind === Kind.REPLY) this.#end(correlation, null, body);
      else this.#fail(correlation, body);
    }
  }

  #told({ sender, body }) {
    const handler = this.#tellHandlers.get(body.type);
    if (handler) this.#guard(handler, body, sender);
    else this.ignored += 1;
  }

  #published(message) {
    const { topic, scope, sender, dropped, body } = message;
    const fits = (each) => (each.isPrefix ? topic.startsWith(each.topic) : topic === each.topic) && (each.scope === "" || each.scope === scope);
    const wanted = [...this.#subscriptions.values()].filter(fits);
    for (const { handler } of wanted) this.#guard(handler, { topic, scope, sender, dropped, body });
    if (!wanted.length) this.#told(message); // it was addressed to this client
  }

  async #answer({ id, sender, body }) {
    const call = key(sender.address, sender.incarnation, id);
    if (this.#answers.has(call)) {
      const kept = this.#answers.get(call);
      if (kept) this.#post({ ...kept }); // null: still at work, its answer will come
      return;
    }
    this.#answers.set(call, null);
    const answer = { kind: Kind.REPLY, to: `${sender.address}@${sender.incarnation}`, correlation: id };
    try {
      const handler = this.#callHandlers.get(body.type);
      if (!handler) throw new PisubError("not_served", `Nobody here answers ${body.type}.`);
      answer.bytes = bodyBytes(await handler(body, sender));
    } catch (error) {
      const code = error instanceof PisubError ? error.code : "internal_error";
      Object.assign(answer, { kind: Kind.FAIL, bytes: bodyBytes({ type: "failure", code, message: error.message, field: error.field ?? null }) });
    }
    answer.id = this.#nextId();
    this.#answers.set(call, answer);
    for (const [oldest, kept] of this.#answers) {
      if (this.#answers.size <= MAX_KEPT_ANSWERS) break;
      if (kept) this.#answers.delete(oldest);
    }
    this.#post({ ...answer });
  }

  #noteArrived(callee, id) {
    if (!this.#arrived.size) this.#timers.acknowledge = setTimeout(() => this.#acknowledge(), ACKNOWLEDGE_AFTER_MS);
    this.#arrived.set(callee, [...(this.#arrived.get(callee) ?? []), id]);
  }

  #acknowledge() {
    for (const [to, messageIds] of this.#arrived) {
      this.#post({ kind: Kind.DONE, priority: Priority.DROPPABLE, to, id: this.#nextId(), bytes: bodyBytes({ type: "arrived", messageIds }) });
    }
    this.#arrived.clear();
  }

  #announce(what, ...news) { for (const handler of this.#listeners[what]) this.#guard(handler, ...news); }

  /** Call a user's function; what it throws surfaces as an uncaught exception, not here. */
  #guard(handler, ...values) {
    queueMicrotask(() => handler(...values));
  }
}

function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}
