"""LlamaIndex: its model and vectors for servers that are like OpenAI's, and its agent."""

import gc
from itertools import islice
from typing import Any

from llama_index.core import PromptTemplate
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case
from .case import TOOL_REQUEST as REQUEST
from .case import TOOL_SYSTEM as SYSTEM
from .person import Person
from .tools import FUNCTIONS, TELLS

PACKAGES = ("llama-index-core", "llama-index-llms-openai-like", "llama-index-embeddings-openai-like")
LACKS: dict[str, str] = {}


def _model(case: Case, max_tokens: int = 256) -> Any:
    abilities = {"is_chat_model": True, "is_function_calling_model": True, "should_use_structured_outputs": True}
    server = {"model": case.model, "api_base": case.api, "api_key": case.token, "max_retries": 0}
    return OpenAILike(**server, **abilities, context_window=2048, temperature=0, max_tokens=max_tokens)


def chat(case: Case) -> object:
    return _model(case, ANSWER_TOKENS).chat([ChatMessage(QUESTION)]).message.content


def stream(case: Case) -> object:
    return [piece.delta or "" for piece in _model(case, ANSWER_TOKENS).stream_chat([ChatMessage(QUESTION)])]


def structured(case: Case) -> object:
    return _model(case).structured_predict(Person, PromptTemplate(PERSON_REQUEST)).model_dump()


def embeddings(case: Case) -> object:
    model = OpenAILikeEmbedding(model_name=case.model, api_base=case.api, api_key=case.token, max_retries=0)
    return model.get_text_embedding_batch(TEXTS)


async def tools(case: Case) -> object:
    offered = [FunctionTool.from_defaults(does, description=TELLS[name]) for name, does in FUNCTIONS.items()]
    agent = FunctionAgent(tools=offered, llm=_model(case), system_prompt=SYSTEM)
    return str(await agent.run(REQUEST))


def cancel(case: Case) -> object:
    pieces = _model(case, LONG_TOKENS).stream_chat([ChatMessage(LONG_REQUEST)])
    read = len([*islice(pieces, READ_PIECES)])
    pieces.close()
    gc.collect()  # the stream of OpenAI's library refers to itself, and closes its connection when it is collected
    return read
