// The host of a session: answers the questions of its children, one dialog at a time.

const ROLE = "host";

/**
 * Hold `role:host` of a session. `show(question, request, signal)` asks the human and resolves to the answer's text, or to
 * null when it was dismissed; `signal` aborts when the dialog must close.
 */
export async function serveHost(client, session, show, { wait = false, recordN = 0 } = {}) {
  const open = new Map();
  let last = Promise.resolve();
  const ready = () => client.publish("checkpoint-bridge:host-ready", { type: "checkpoint-bridge:host-ready", sessionId: session }, { scope: session });

  client.serve("checkpoint-bridge:request", (request) => {
    const asked = open.get(request.askId); // called again after a reconnect of the asker
    if (asked) return asked.result;
    const closing = new AbortController();
    const result = (last = last.then(() => runAsk(request, show, closing, client.address)).finally(() => open.delete(request.askId)));
    open.set(request.askId, { result, closing });
    return result;
  });
  const close = (message) => open.get(message.askId)?.closing.abort(["cancelled", message.reason ?? "answered elsewhere"]);
  client.onTell("checkpoint-bridge:cancel", close);
  client.onTell("checkpoint-bridge:answered", (message) => message.number === 0 && close(message));
  client.onRole((granted) => granted.role === ROLE && granted.scope === session && ready());
  const claimed = await client.claim(ROLE, session, { wait, recordN });
  if (claimed.generation) ready();
  return claimed;
}

async function runAsk(request, show, closing, by) {
  const answers = [];
  const whole = request.timeoutMs ? setTimeout(() => closing.abort(["timeout", "The time for all questions ran out."]), request.timeoutMs) : null;
  let ended = null;
  for (const question of request.questions) {
    ended = ended ?? (closing.signal.aborted ? closing.signal.reason : null);
    const value = ended ? null : await oneDialog(question, request, show, closing.signal).catch((error) => ((ended = ["error", error.message]), null));
    if (value === null) ended ??= closing.signal.aborted ? closing.signal.reason : ["timeout-or-cancelled", "A question was not answered."];
    answers.push(value === null ? null : { value, by, at: Date.now() });
  }
  clearTimeout(whole);
  const [status, reason] = ended ?? ["ok", ""];
  return { type: "checkpoint-bridge:response", askId: request.askId, status, answers, reason };
}

async function oneDialog(question, request, show, outer) {
  const closing = new AbortController();
  const close = () => closing.abort();
  outer.addEventListener("abort", close, { once: true });
  const timer = request.questionTimeoutMs ? setTimeout(close, request.questionTimeoutMs) : null;
  const closed = new Promise((resolve) => closing.signal.addEventListener("abort", () => resolve(null), { once: true }));
  try {
    const value = await Promise.race([show(question, request, closing.signal), closed]);
    if (value !== null && question.options?.length && !question.options.includes(value)) throw new Error(`${JSON.stringify(value)} is none of the options`);
    return value;
  } finally {
    clearTimeout(timer);
    outer.removeEventListener("abort", close);
  }
}

/** Ask the host of a session, as any peer may call its role; resolves to the response. */
export function ask(client, session, request) {
  return client.call("role:host", { type: "checkpoint-bridge:request", askedAt: Date.now(), ...request }, { scope: session, idempotent: true });
}
