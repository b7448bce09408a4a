"""Find the files of a model on huggingface.co, or on a hub with the same API, through `huggingface_hub`.

That library reads `HF_TOKEN` and `HF_ENDPOINT`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import httpx2

try:
    import huggingface_hub as hub  # it imports its parts on first use, which takes half a second
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
except ModuleNotFoundError:
    hub = None  # type: ignore[assignment]  # the extra `hub` is not installed

from orchestrator.registry.gguf import PIECE
from orchestrator.registry.sources.contract import RemoteFile, SourceError

# Default: about a quarter of the size of 16-bit weights, at nearly the same quality.
USUAL_QUANTISATION: Final = "Q4_K_M"
FORM: Final = "hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER/REPO/FILE.gguf"
TIMEOUT_SECONDS: Final = 60.0
_NAME: Final = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[^:]+\.gguf)|:(?P<quantisation>[\w.-]+))?")
_QUANTISATION: Final = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|T?Q\d_\w+|F16|BF16|F32|MXFP4\w*))(?=[-._]|$)", re.I)
_NO_MODELS: Final = ("mmproj", "imatrix")  # in names of GGUF files that hold no language model
# Begin the names of files that only draft for the model of the repository.
_HEADS: Final = ("mtp-", "eagle3-", "dspark-")


@dataclass(frozen=True, slots=True)
class HubModel:
    repo: str  # OWNER/REPO
    files: tuple[RemoteFile, ...]  # pieces in order
    source: str  # `hf:OWNER/REPO/FILE`


@dataclass(frozen=True, slots=True)
class HubName:
    """The parts of `hf:OWNER/REPO...`."""

    repo: str  # OWNER/REPO
    file: str | None  # path in the repository
    quantisation: str | None


def parse_name(written: str) -> HubName | None:
    """Return the parts of `hf:OWNER/REPO...`, or None for anything else."""
    match = _NAME.fullmatch(written)
    return None if match is None else HubName(match["repo"], match["file"], match["quantisation"])


def place_on_hub(written: str, folder: Path) -> Path:
    """Return where the file `hf:OWNER/REPO/FILE` lies after its download into `folder`."""
    named = parse_name(written)
    assert named is not None, f"{written} names a model on a hub"
    return folder / named.repo / PurePosixPath(named.file or "").name


def find_on_hub(written: str, revision: str | None = None) -> HubModel:
    """Return the model that `hf:OWNER/REPO...` stands for, at a commit or else the newest one. Raises SourceError."""
    named = parse_name(written)
    if named is None:
        raise SourceError(written, "does not name a model on a hub", FORM)
    repo = named.repo
    files = _files(written, repo, revision)
    models = _models(files)
    if not models:
        raise SourceError(written, "the repository holds no GGUF model", "one whose name ends in -GGUF")
    pieces = _select_pieces(written, models, named.file, named.quantisation)
    return HubModel(repo, tuple(files[path] for path in pieces), f"hf:{repo}/{pieces[0]}")


def _files(written: str, repo: str, revision: str | None) -> dict[str, RemoteFile]:
    if hub is None:
        raise SourceError(written, "models of a hub need the extra `hub`", "pip install 'orchestrator[hub]'")
    try:
        info = hub.HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT_SECONDS)
    except GatedRepoError as error:
        raise SourceError(written, "the repository is gated", _if_gated(repo)) from error
    except RepositoryNotFoundError as error:
        message = "there is no such repository, or it is private"
        raise SourceError(written, message, f"{FORM}; for a private one set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise SourceError(written, f"the repository has no commit {revision} any more", "another source") from error
    except HFValidationError as error:
        raise SourceError(written, str(error), FORM) from error
    except OfflineModeIsEnabled as error:
        raise SourceError(
            written, "HF_HUB_OFFLINE forbids requests to the hub", "the same without that variable"
        ) from error
    except HfHubHTTPError as error:
        raise SourceError(written, f"the hub answers {error.response.status_code}") from error
    except httpx2.HTTPError as error:
        message = f"{constants.ENDPOINT} cannot be reached: {str(error) or type(error).__name__}"
        raise SourceError(written, message, "a network connection, or HF_ENDPOINT with another hub") from error
    headers = {"Authorization": f"Bearer {token}"} if (token := hub.get_token()) else {}
    return {
        sibling.rfilename: RemoteFile(
            url=hub.hf_hub_url(repo, sibling.rfilename, revision=revision),
            name=PurePosixPath(sibling.rfilename).name,
            size=sibling.size,
            sha256=None if sibling.lfs is None else sibling.lfs.sha256,
            headers=headers,
            if_refused=_if_gated(repo),  # of a gated repository everybody sees the list of files
        )
        for sibling in info.siblings or ()
    }


def _if_gated(repo: str) -> str:
    return f"accept its terms at {constants.ENDPOINT}/{repo}, and set HF_TOKEN to a token of yours"


def _models(paths: Iterable[str]) -> dict[str, list[str]]:
    # Pieces of each GGUF model, by the path without the number of a piece.
    models: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        name = PurePosixPath(path).name
        holds_model = not name.startswith(_HEADS) and not any(kind in name.lower() for kind in _NO_MODELS)
        if name.endswith(".gguf") and holds_model:
            piece = PIECE.fullmatch(path)
            models[path if piece is None else f"{piece['stem']}.gguf"].append(path)
    return models


def _select_pieces(written: str, models: dict[str, list[str]], file: str | None, quantisation: str | None) -> list[str]:
    if file is not None:
        matches = [model for model, pieces in models.items() if file == model or file in pieces]
        if not matches:
            raise SourceError(written, f"the repository has no file {file}", ", ".join(models))
    elif quantisation is None and len(models) == 1:
        matches = [*models]
    else:
        requested = (quantisation or USUAL_QUANTISATION).upper()
        matches = [model for model in models if quantisation_of(model) == requested]
        if len(matches) != 1:
            message = (
                f"the repository has {'no model' if not matches else 'several models'} of quantisation {requested}"
            )
            named = {quantisation_of(model) or PurePosixPath(model).name for model in models}
            raise SourceError(written, message, ", ".join(sorted(matches or named)))
    return _complete(written, models[matches[0]])


def quantisation_of(path: str) -> str | None:
    """Return the quantisation in a file's name, in capitals, or None."""
    matches = _QUANTISATION.findall(PurePosixPath(path).stem)
    return str(matches[-1]).upper() if matches else None


def _complete(written: str, pieces: list[str]) -> list[str]:
    match = PIECE.fullmatch(pieces[0])
    if match is None:
        return pieces
    stem, count = match["stem"], match["count"]
    expected = [f"{stem}-{number:05d}-of-{count}.gguf" for number in range(1, int(count) + 1)]
    if missing := [path for path in expected if path not in pieces]:
        raise SourceError(written, f"the repository lacks pieces of the model: {', '.join(missing)}", "another one")
    return pieces
