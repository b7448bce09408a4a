"""llm, the library behind the command of the same name."""

import gc
import json
import os
from itertools import islice
from typing import Any

from llm.default_plugins.openai_models import Chat, OpenAIEmbeddingModel

from .case import ANSWER_TOKENS, LONG_REQUEST, LONG_TOKENS, PERSON_REQUEST, QUESTION, READ_PIECES, TEXTS, Case
from .case import TOOL_REQUEST as REQUEST
from .person import Person
from .tools import FUNCTIONS

PACKAGES = ("llm",)
LACKS: dict[str, str] = {}


def _model(case: Case) -> Any:
    # These are the arguments that an entry of its file extra-openai-models.yaml gives.
    abilities = {"supports_schema": True, "supports_tools": True}
    return Chat(case.model, key=case.token, model_name=case.model, api_base=case.api, **abilities)


def _ask(case: Case, text: str, **more: Any) -> Any:
    return _model(case).prompt(text, key=case.token, temperature=0, **more)


def chat(case: Case) -> object:
    return _ask(case, QUESTION, max_tokens=ANSWER_TOKENS, stream=False).text()


def stream(case: Case) -> object:
    return [*_ask(case, QUESTION, max_tokens=ANSWER_TOKENS)]


def structured(case: Case) -> object:
    return json.loads(_ask(case, PERSON_REQUEST, schema=Person, stream=False).text())


def embeddings(case: Case) -> object:
    os.environ["OPENAI_BASE_URL"] = case.api  # the only way to name the server of a model that embeds
    model = OpenAIEmbeddingModel(case.model, case.model)
    model.key = case.token
    return [*model.embed_multi(TEXTS)]


def tools(case: Case) -> object:
    return _model(case).chain(REQUEST, tools=[*FUNCTIONS.values()], key=case.token).text()


def cancel(case: Case) -> object:
    pieces = iter(_ask(case, LONG_REQUEST, max_tokens=LONG_TOKENS))
    read = len([*islice(pieces, READ_PIECES)])
    pieces.close()
    gc.collect()  # the stream of OpenAI's library refers to itself, and closes its connection when it is collected
    return read
