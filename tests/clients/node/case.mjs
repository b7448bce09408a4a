// What the programs of clients ask the daemon, as in ../programs/case.py and ../programs/tools.py.
import { z } from "zod";

export const QUESTION = "What is the capital of France?";
export const ANSWER_TOKENS = 160;
export const PERSON_REQUEST = "Ann is 34 years old. Give her name and age as JSON.";
export const PERSON = z.object({ name: z.string(), age: z.int() });
export const TEXTS = ["the cat sleeps", "the cat sleeps", "income tax law"];
export const LONG_REQUEST = "Write all numbers from 1 to 1000, one on each line, and nothing else.";
export const LONG_TOKENS = 1500;
export const READ_PIECES = 5;
export const TOOL_REQUEST = "Look up the price of quartz, then add 12.";

// The calls of tools since the list was emptied last: the name of the tool, and its arguments.
export const CALLS = [];

const PRICES = { quartz: 214 };

// The tools: what each one is called, does and takes, and the function itself.
export const TOOLS = [
  {
    name: "get_price",
    description: "Return the price of an item.",
    parameters: z.object({ item: z.string() }),
    run: ({ item }) => {
      CALLS.push(["get_price", { item }]);
      return String(PRICES[item]);
    },
  },
  {
    name: "add",
    description: "Add two numbers.",
    parameters: z.object({ a: z.int(), b: z.int() }),
    run: ({ a, b }) => {
      CALLS.push(["add", { a, b }]);
      return String(a + b);
    },
  },
];

// Returns the conversation that begins with this message of the user.
export const said = (content) => [{ role: "user", content }];

// Returns all that an iteration yields.
export async function collected(pieces) {
  const found = [];
  for await (const piece of pieces) found.push(piece);
  return found;
}

// Reads a few pieces, then calls `stop`. Returns how many it has read.
export async function readSome(pieces, stop) {
  let read = 0;
  try {
    for await (const _ of pieces) {
      read += 1;
      if (read === READ_PIECES) {
        stop();
        break;
      }
    }
  } catch (error) {
    if (error.name !== "AbortError" && error.name !== "APIUserAbortError") throw error;
  }
  return read;
}
