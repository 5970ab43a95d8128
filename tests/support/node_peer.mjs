// A Node process that a test drives: one JSON command per line in, one JSON line per answer or event out.

import { createInterface } from "node:readline";

import { ask, serveHost } from "./host.mjs";
import { Client, PisubError } from "./pisub.mjs";

const say = (line) => process.stdout.write(`${JSON.stringify(line, (_, value) => (typeof value === "bigint" ? String(value) : value))}\n`);
const event = (name) => (value) => say({ event: name, value });
const handled = {};
const held = [];
let client = null;

async function echo(body, sender) {
  handled[body.text] = (handled[body.text] ?? 0) + 1;
  if (body.isHeld) {
    event("held")(body.text);
    await new Promise((resolve) => held.push(resolve));
  }
  if (body.text === "refuse") throw new PisubError("no_such_thing", "It is refused.", { field: "text" });
  return { type: "test:said", text: `${body.text} to ${sender.address}`, times: handled[body.text] };
}

const commands = {
  async connect(options) {
    client = await Client.connect(options);
    client.onState(event("state"));
    client.onRole(event("role"));
    client.onTell("test:say", event("told"));
    client.serve("test:say", echo);
    return { address: client.address, incarnation: client.incarnation, authority: client.authority, epoch: client.epoch };
  },
  call: ({ to, body, ...options }) => client.call(to, body, options),
  tell: ({ to, body, ...options }) => client.tell(to, body, options),
  publish: ({ topic, body, ...options }) => client.publish(topic, body, options),
  subscribe: async ({ name, topic, ...options }) => void (await client.subscribe(topic, event(name), options)),
  claim: ({ role, scope, ...options }) => client.claim(role, scope, options),
  release: ({ role, scope }) => client.release(role, scope),
  findRole: ({ role, scope }) => client.findRole(role, scope),
  watch: ({ address }) => client.watch(address, event("gone")),
  status: () => client.status(),
  ask: ({ session, request }) => ask(client, session, request),
  host: ({ session, answers }) => serveHost(client, session, async ({ text }, request, signal) => {
    event("dialog")(text);
    if (text in answers) return answers[text];
    return new Promise((resolve) => signal.addEventListener("abort", () => (event("closed")(text), resolve(null))));
  }),
  letGo: () => held.splice(0).forEach((resolve) => resolve()),
  handled: () => handled,
};

for await (const line of createInterface({ input: process.stdin })) {
  const { number, command, ...parameters } = JSON.parse(line);
  Promise.resolve(commands[command](parameters)).then(
    (value) => say({ number, value: value ?? null }),
    ({ code, message, field, holder }) => say({ number, error: { code, message, field, holder } }),
  );
}
await client?.close();
