"""The registry's models that other servers run. They take no resources of this machine."""

import asyncio
from collections.abc import Iterable, Iterator

from orchestrator.pool.errors import ModelRemote, ModelUnavailable
from orchestrator.pool.remote import RemoteModel
from orchestrator.pool.status import ModelState, ModelStatus
from orchestrator.registry.models import ModelEntry


class Remotes:
    """The remote models among `entries`. Use it from one event loop, and `close` it at the end."""

    def __init__(self, entries: Iterable[ModelEntry]) -> None:
        self._models = {entry.id: RemoteModel(entry) for entry in entries if entry.remote is not None}
        self._retired: set[RemoteModel] = set()

    def adopt(self, entries: Iterable[ModelEntry]) -> list[RemoteModel]:
        """Adopt other entries, and return the models to retire."""
        before, self._models = self._models, {}
        for entry in entries:
            if entry.remote is None:
                continue
            model = before.get(entry.id)
            if model is not None and (model.entry.remote, model.entry.slots) == (entry.remote, entry.slots):
                model.entry = entry
                self._models[entry.id] = before.pop(entry.id)
            else:
                self._models[entry.id] = RemoteModel(entry)
        self._retired = {model for model in (*self._retired, *before.values()) if model.requests}
        return list(before.values())

    def get(self, model: str) -> RemoteModel | None:
        """Return the remote model with this id, or None. Raises ModelUnavailable."""
        remote = self._models.get(model)
        if remote is not None and remote.entry.why_not is not None:
            raise ModelUnavailable(model, remote.entry.why_not)
        return remote

    def refuse(self, model: str) -> None:
        """Raise ModelRemote if `model` is remote, for operations that need a model loaded here."""
        if model in self._models:
            limits = "it is neither loaded nor unloaded here, nor are its prompts counted, nor does it embed"
            raise ModelRemote(model, f"model {model} is run by another server: {limits}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def statuses(self, now: float) -> Iterator[ModelStatus]:
        return (_status(remote, now) for remote in self._models.values())

    async def close(self) -> None:
        """End running requests, which raise EngineStopped, and close the connections."""
        async with asyncio.TaskGroup() as closing:
            for remote in (*self._models.values(), *self._retired):
                closing.create_task(remote.close())


def _status(remote: RemoteModel, now: float) -> ModelStatus:
    why_not = remote.entry.why_not
    state: ModelState = "unavailable" if why_not else "broken" if remote.open_seconds(now) else "ready"
    return ModelStatus(
        model=remote.entry.id,
        residency=remote.entry.residency,
        pinned=False,
        state=state,
        bytes=0,
        waiting=remote.requests - remote.active,
        requests=remote.requests,
        active=remote.active,
        threads=None,
        pid=None,
        reason=why_not or remote.why_resting(now) or remote.last_failure,
        instances=(),
    )
