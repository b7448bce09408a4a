// openai, the package for Node.
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";

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
  said,
} from "./case.mjs";

export const PACKAGES = ["openai"];
export const LACKS = {};

const client = ({ api, token }) => new OpenAI({ baseURL: api, apiKey: token, maxRetries: 0 });

const asked = ({ model }, text, max_tokens) => ({ model, messages: said(text), max_tokens, temperature: 0 });

export async function chat(at) {
  const done = await client(at).chat.completions.create(asked(at, QUESTION, ANSWER_TOKENS));
  return done.choices[0].message.content;
}

export async function stream(at) {
  const body = { ...asked(at, QUESTION, ANSWER_TOKENS), stream: true };
  const pieces = await collected(await client(at).chat.completions.create(body));
  return pieces.map((piece) => piece.choices[0]?.delta.content ?? "");
}

export async function structured(at) {
  const body = { ...asked(at, PERSON_REQUEST, 200), response_format: zodResponseFormat(PERSON, "person") };
  return (await client(at).chat.completions.parse(body)).choices[0].message.parsed;
}

export async function embeddings(at) {
  return (await client(at).embeddings.create({ model: at.model, input: TEXTS })).data.map((one) => one.embedding);
}

export async function tools(at) {
  const offered = TOOLS.map(({ run, ...tool }) => zodFunction({ ...tool, function: run }));
  return client(at)
    .chat.completions.runTools({ model: at.model, messages: said(TOOL_REQUEST), tools: offered })
    .finalContent();
}

export async function cancel(at) {
  const body = { ...asked(at, LONG_REQUEST, LONG_TOKENS), stream: true };
  const pieces = await client(at).chat.completions.create(body);
  return readSome(pieces, () => pieces.controller.abort());
}
