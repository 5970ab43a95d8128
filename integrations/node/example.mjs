// node example.mjs [SESSION]: shows the broker's peers, then answers the questions of a session's children from this terminal.

import { createInterface } from "node:readline/promises";

import { serveHost } from "./host.mjs";
import { Client } from "./pisub.mjs";

const session = process.argv[2] ?? process.env.PISUB_SESSION ?? "example";
const client = await Client.connect({ kind: "host", session });
const { peers = [] } = await client.status();
console.log(`Connected as ${client.address}. Peers: ${peers.map((each) => each.address).join(", ")}`);

await client.subscribe("subagent:async-complete", ({ body }) => console.log(`Run ${body.runId} is ${body.state}.`), { scope: session });
const terminal = createInterface({ input: process.stdin, output: process.stdout });
await serveHost(client, session, async ({ text, options = [] }, { agent, runId }, signal) => {
  const choices = options.map((each, at) => `\n  ${at + 1}) ${each}`).join("");
  const line = await terminal.question(`${agent} (${runId}) asks: ${text}${choices}\n> `, { signal }).catch(() => null);
  return line && options.length ? (options[Number(line) - 1] ?? null) : line || null;
});
console.log(`This process answers the questions of session ${session}. Ctrl-C ends it.`);
process.once("SIGINT", async () => {
  await client.close();
  process.exit(0);
});
