// ai, Vercel's SDK, with its provider for servers that are like OpenAI's.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, embedMany, generateText, isStepCount, streamText, tool } from "ai";

import {
  ANSWER_TOKENS,
  LONG_REQUEST,
  LONG_TOKENS,
  PERSON,
  PERSON_REQUEST,
  QUESTION,
  TEXTS,
  TOOLS,
  TOOL_REQUEST,
  collected,
  readSome,
} from "./case.mjs";

export const PACKAGES = ["ai", "@ai-sdk/openai-compatible"];
export const LACKS = {};

const provider = ({ api, token }) =>
  createOpenAICompatible({ name: "daemon", baseURL: api, apiKey: token, supportsStructuredOutputs: true });

const asked = (at, prompt, maxOutputTokens) => ({
  model: provider(at).chatModel(at.model),
  prompt,
  maxOutputTokens,
  temperature: 0,
  maxRetries: 0,
});

export async function chat(at) {
  return (await generateText(asked(at, QUESTION, ANSWER_TOKENS))).text;
}

export async function stream(at) {
  return collected(streamText(asked(at, QUESTION, ANSWER_TOKENS)).textStream);
}

export async function structured(at) {
  return (await generateText({ ...asked(at, PERSON_REQUEST, 200), output: Output.object({ schema: PERSON }) })).output;
}

export async function embeddings(at) {
  const model = provider(at).embeddingModel(at.model);
  return (await embedMany({ model, values: TEXTS, maxRetries: 0 })).embeddings;
}

export async function tools(at) {
  const offered = TOOLS.map(({ name, description, parameters, run }) => [
    name,
    tool({ description, inputSchema: parameters, execute: run }),
  ]);
  const body = { ...asked(at, TOOL_REQUEST, 256), tools: Object.fromEntries(offered), stopWhen: isStepCount(6) };
  return (await generateText(body)).text;
}

export async function cancel(at) {
  const stopped = new AbortController();
  const { textStream } = streamText({ ...asked(at, LONG_REQUEST, LONG_TOKENS), abortSignal: stopped.signal });
  return readSome(textStream, () => stopped.abort());
}
