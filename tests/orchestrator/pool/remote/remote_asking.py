"""What the remote model is asked for in the tests, and asking for it in vain."""

import pytest

from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import EngineError
from orchestrator.pool.remote.client import RemoteModel

HELLO = Generation(messages=(Message("system", "Be brief."), Message("user", "Hello?")), max_tokens=9)


async def failing(
    model: RemoteModel, request: Generation = HELLO, kind: type[EngineError] = EngineError
) -> EngineError:
    """Ask, and return the error of this kind that it has to end with."""
    with pytest.raises(kind) as caught:
        await model.generate(request)
    return caught.value
