// @anthropic-ai/sdk.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";

import {
  ANSWER_TOKENS,
  LONG_REQUEST,
  LONG_TOKENS,
  PERSON,
  PERSON_REQUEST,
  QUESTION,
  TOOLS,
  TOOL_REQUEST,
  collected,
  readSome,
  said,
} from "./case.mjs";

export const PACKAGES = ["@anthropic-ai/sdk"];
export const LACKS = { embeddings: "Anthropic's API has none" };

const client = ({ address, token }) => new Anthropic({ baseURL: address, apiKey: token, maxRetries: 0 });

const asked = ({ model }, text, max_tokens) => ({ model, messages: said(text), max_tokens, temperature: 0 });

const textOf = (message) => message.content.map((block) => (block.type === "text" ? block.text : "")).join("");

export async function chat(at) {
  return textOf(await client(at).messages.create(asked(at, QUESTION, ANSWER_TOKENS)));
}

export async function stream(at) {
  const pieces = await collected(client(at).messages.stream(asked(at, QUESTION, ANSWER_TOKENS)));
  return pieces.filter((one) => one.type === "content_block_delta").map((one) => one.delta.text ?? "");
}

export async function structured(at) {
  const body = { ...asked(at, PERSON_REQUEST, 200), output_config: { format: zodOutputFormat(PERSON) } };
  return (await client(at).messages.parse(body)).parsed_output;
}

export async function tools(at) {
  const offered = TOOLS.map(({ parameters, ...tool }) => betaZodTool({ ...tool, inputSchema: parameters }));
  const body = { model: at.model, max_tokens: 256, messages: said(TOOL_REQUEST), tools: offered };
  return textOf(await client(at).beta.messages.toolRunner(body));
}

export async function cancel(at) {
  const pieces = client(at).messages.stream(asked(at, LONG_REQUEST, LONG_TOKENS));
  return readSome(pieces, () => pieces.abort());
}
