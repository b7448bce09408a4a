// Drives the program of one client: `node drive.mjs NAME`. Requests and answers are those of ../programs/drive.py.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import { CALLS } from "./case.mjs";

console.log = console.info = console.warn = console.error; // what a client prints goes to the error output

const program = await import(`./${process.argv[2]}.mjs`);

const tell = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);

const version = (name) =>
  JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url), "utf8")).version;

async function answer({ ability, model }) {
  if (program.LACKS[ability] !== undefined) return { lacks: program.LACKS[ability] };
  const { DAEMON_ADDRESS: address, DAEMON_TOKEN: token } = process.env;
  CALLS.length = 0;
  try {
    const value = await program[ability]({ address, token, model, api: `${address}/v1` });
    return { value, calls: CALLS };
  } catch (error) {
    console.error(error);
    return { error: `${error.name}: ${error.message}`, calls: CALLS };
  }
}

tell({ versions: Object.fromEntries(program.PACKAGES.map((name) => [name, version(name)])) });
for await (const line of createInterface({ input: process.stdin })) tell(await answer(JSON.parse(line)));
