"""Read registry/catalogue.yaml, which gives known models short names and describes them."""

from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.registry.gguf import PIECE
from orchestrator.registry.measured import MeasuredShares

PATH: Final = Path(__file__).resolve().parent.parent / "catalogue.yaml"

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class AdapterEntry(BaseModel):
    """An adapter (LoRA) of ours, which the model uses in one role."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Annotated[str, Field(description="its file, relative to the catalogue")]
    sha256: Annotated[Sha256, Field(description="the digest of its file")]
    system: Annotated[str, Field(description="the system prompt that it is trained with")]
    plan_quality: Annotated[
        float | None,
        Field(ge=0, le=1, description="the share of plans that are right with it, of requests never looked at"),
    ] = None

    plans_by_cores: Annotated[bool, Field(description="whether it is trained on prompts that say the cores")] = False

    @property
    def path(self) -> Path:
        return PATH.parent / self.file


class GgufFile(BaseModel):
    """The GGUF file of a model, which may be in pieces, identified by its bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: Annotated[
        int | None, Field(gt=0, description="its exact size, of all pieces together; none if no document states it")
    ] = None
    sha256: Annotated[
        Sha256 | tuple[Sha256, ...],
        Field(description="the digest of its bytes; if it is split, one per piece in order"),
    ]

    @property
    def digests(self) -> tuple[str, ...]:
        """Return one digest per piece, in order."""
        return (self.sha256,) if isinstance(self.sha256, str) else self.sha256


class ModelFacts(BaseModel):
    """The published facts about a model. `init` reads the header of the file instead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    architecture: Annotated[str, Field(description="llama.cpp's name of its architecture")]
    attention: Annotated[str, Field(description="which tokens its layers attend to")]
    context: Annotated[int, Field(gt=0, description="the longest sequence that it was made for, in tokens")]
    thinking: Annotated[
        Literal["switch", "effort", "always", "never"],
        Field(description="how its thinking is controlled: by a switch or an effort; or it always or never thinks"),
    ]
    drafts: Annotated[str | None, Field(description="the heads that were published to draft for it")] = None
    confirmed: Annotated[str, Field(description="which of this is confirmed, and by what kind of document")]


class CatalogueEntry(BaseModel):
    """A model that `orchestrator models get` knows by a short name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Annotated[str, Field(description="where it comes from, as `orchestrator models get` takes it")]
    revision: Annotated[
        str | None, Field(pattern="^[0-9a-f]{40}$", description="the commit of the hub's repository that has the file")
    ] = None
    mirror: Annotated[str | None, Field(description="where its exact file comes from, without the source")] = None
    quantisation: Annotated[str, Field(description="how its weights are stored")]
    size: Annotated[int, Field(gt=0, description="about how many bytes are downloaded")]
    licence: Annotated[str, Field(description="its licence, by its SPDX name or its own")]
    roles: Annotated[tuple[str, ...], Field(description="the roles that it suits, the best first")]
    draft: Annotated[str | None, Field(description="the short name of a model that can draft for it")] = None
    description: Annotated[str, Field(description="what it is, in a sentence")]
    measured: Annotated[
        MeasuredShares | None, Field(description="what `orchestrator bench model` counted of this very file")
    ] = None
    gguf: Annotated[GgufFile | None, Field(description="the exact file, whose digest a download must have")] = None
    facts: Annotated[ModelFacts | None, Field(description="what public documents say of it")] = None
    adapters: Annotated[
        dict[str, AdapterEntry], Field(description="adapters of ours, by the role that they are for")
    ] = {}

    @model_validator(mode="after")
    def _has_a_digest_per_piece(self) -> Self:
        match = PIECE.fullmatch(self.source)
        pieces = 1 if match is None else int(match["count"])
        if self.gguf is not None and len(self.gguf.digests) != pieces:
            given = f"{len(self.gguf.digests)} for {self.source}"
            raise ValueError(f"gguf.sha256: {given}; accepted: {pieces}, one per piece in order")
        return self


@cache
def read_catalogue() -> dict[str, CatalogueEntry]:
    """Return the entries by their short names, in the order of the file."""
    document = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return {name: CatalogueEntry.model_validate(entry) for name, entry in document.items()}
