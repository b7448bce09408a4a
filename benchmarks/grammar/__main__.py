"""Compare llguidance with our grammars: which texts it accepts, and how fast sequences decode under it.

    .venv/bin/pip install --no-deps llguidance==1.9.1
    python -m benchmarks.grammar [FILE.gguf …]

llguidance is no dependency of the project. Without files, the speed is that of the largest embedded model. The cases
are those of the tests of our grammars, and others that a client or the product may hand in.

For the speed, the engine's own `Sequence` samples greedily from the same logits. Each text is forced to be the one that
our grammar gave: a sequence samples, and then takes the token of that text. So all have the same tokens and steps.
"""

import dataclasses
import functools
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import llguidance.numpy
from llguidance import LLExecutor

from benchmarks.divergence import prompts
from benchmarks.engine.goals import FoundValue, WantedGoal, judge
from benchmarks.grammar.cases import Verdict, verdicts
from benchmarks.grammar.guided import Guidance, Guided, guided_schema
from benchmarks.results import FOLDER, write
from orchestrator.bench.environment import machine, versions
from orchestrator.bench.goals import exactly
from orchestrator.bench.paired import ratio
from orchestrator.engine.client.grammar import schema_grammar
from orchestrator.engine.contract import EngineSpec
from orchestrator.engine.llama import Grammar, Llama, as_tokens
from orchestrator.engine.worker.chat import PromptTemplate
from orchestrator.engine.worker.repetition import RepetitionGuard, SingleBytes
from orchestrator.engine.worker.sequence import Sequence as Text
from orchestrator.run.frontdoor.compact import plan_schema

_TINY: Final = Path(__file__).parents[2] / "registry" / "tiny"
WIDTHS: Final = (1, 16)
ROUNDS: Final = 5
TOKENS: Final = 96  # of each sequence, and a third of them for larger models
OURS: Final = "ours"
ON_DEMAND: Final = "llguidance, masks on demand"  # of a sequence whose likeliest token is refused, as ours
AHEAD: Final = "llguidance, masks ahead"  # of all sequences in one call, while the model decodes
KEPT_SPEED: Final = 0.98


Texts = Sequence[Sequence[int]]  # the tokens of each sequence


@dataclass(frozen=True, slots=True)
class Decoded:
    """A run of sequences next to each other."""

    seconds: float
    texts: Texts
    rejections: int  # how often the likeliest token was not allowed
    differing: int  # how often another token was sampled than that of the forced text


class Masks:
    """Computes the masks of all sequences in one call, in another thread."""

    def __init__(self, vocabulary: int, texts: Sequence[Text], thread: ThreadPoolExecutor) -> None:
        self._texts, self._thread = texts, thread
        self._executor = LLExecutor(1)
        self._words = llguidance.numpy.allocate_token_bitmask(len(texts), vocabulary)

    def start(self) -> None:
        matchers = [(grammar.matcher, row) for row, grammar in enumerate(self._grammars)]
        fill = llguidance.numpy.fill_next_token_bitmask_par
        self._filled = self._thread.submit(fill, self._executor, matchers, self._words)

    def finish(self) -> None:
        """Wait for the masks, and give them to the grammars."""
        self._filled.result()
        for grammar, words in zip(self._grammars, self._words, strict=True):
            grammar.use_mask(words)

    @property
    def _grammars(self) -> list[Guided]:
        return [text.grammar for text in self._texts if isinstance(text.grammar, Guided)]


class Decoder:
    """Decodes the same prompts again and again."""

    def __init__(self, file: Path) -> None:
        spec = EngineSpec(file=str(file), context=1024, slots=max(WIDTHS))
        self.llama = Llama(spec)
        started = time.perf_counter()
        self._guidance = Guidance(self.llama.vocab)
        self.guidance_seconds = time.perf_counter() - started  # which an engine would take longer to start
        self._single = SingleBytes(self.llama.vocab)
        self._requests = prompts()[: max(WIDTHS)]
        template = PromptTemplate(self.llama.vocab, self.llama.chat_template())
        self._prompts = [template.tokens_of(template.segments(each.messages, {}, ())) for each in self._requests]
        for seq, prompt in enumerate(self._prompts):
            for at in range(0, len(prompt), self.llama.batch.capacity):
                self.llama.batch.clear()
                self.llama.batch.add(seq, at, prompt[at : at + self.llama.batch.capacity], 1)
                self.llama.decode()

    def run(self, way: str, start: Callable[[], Grammar], width: int, count: int, forced: Texts | None) -> Decoded:
        """Decode `count` tokens of each of `width` sequences: those of `forced`, or freely."""
        llama, batch, differing = self.llama, self.llama.batch, 0
        texts = [self._text(seq, start(), count) for seq in range(width)]
        for text in texts:
            llama.truncate(text.seq, len(text.prompt) - 1)
        with ThreadPoolExecutor(1) as thread:
            masks = Masks(self.llama.vocab.size, texts, thread) if way == AHEAD else None
            started = time.perf_counter()
            for step in range(count):
                batch.clear()
                for text in texts:
                    batch.add_one(text.seq, text.length - 1, text.output[-1] if text.output else int(text.prompt[-1]))
                if masks is not None:
                    masks.start()
                logits = llama.decode()
                best = logits.argmax(axis=1).tolist()
                if masks is not None:
                    masks.finish()
                for row, text in enumerate(texts):
                    token = text.sample(logits[row], best[row], llama.vocab.piece)
                    taken = token if forced is None else forced[row][step]
                    differing += token != taken
                    text.append(taken, llama.vocab.piece(taken), end=False)
                    text.append_ending(llama.vocab.end, llama.vocab.piece)
            seconds = time.perf_counter() - started
        for text in texts:
            text.close()
        return Decoded(seconds, [text.output for text in texts], sum(text.rejections for text in texts), differing)

    def starts(self, schema: Any) -> dict[str, Callable[[], Grammar]]:
        """Return what makes a grammar of the schema in its first state, in each way."""
        gbnf, guided = schema_grammar(schema), guided_schema(schema)
        guidance = functools.partial(self._guidance.start, guided)
        return {OURS: functools.partial(self.llama.grammars.start, gbnf), ON_DEMAND: guidance, AHEAD: guidance}

    def _text(self, seq: int, grammar: Grammar, count: int) -> Text:
        vocab = self.llama.vocab
        text = Text(
            seq,
            self._requests[seq],
            self._prompts[seq],
            max_tokens=count + 1,  # it must not end before the run does
            stops=(),
            grammar=grammar,
            stream=False,
            ends=as_tokens(sorted(vocab.end)),
            vocabulary=vocab.size,
            guard=RepetitionGuard(vocab, self._single, is_json=True),
        )
        text.seq = seq
        return text


_RECORD: Final = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 60},
        "kind": {"enum": ["person", "place", "event"]},
        "year": {"type": "integer", "minimum": 0, "maximum": 2100},
        "words": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
    },
    "required": ["title", "kind", "year", "words"],
}
# None of their texts ends before a run does.
SPEED_SCHEMAS: Final[Mapping[str, Any]] = {
    "records": {"type": "array", "items": _RECORD, "minItems": 60},
    "plan": plan_schema(["worker", "coder"], least=60),
}


def measure(file: Path, count: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each schema and width: tokens a second of each way, and ratios to ours.

    `count` is the number of tokens of each sequence.
    """
    decoder = Decoder(file)
    for (name, schema), width in itertools.product(SPEED_SCHEMAS.items(), WIDTHS):
        starts = decoder.starts(schema)
        forced = decoder.run(OURS, starts[OURS], width, count, None).texts
        runs: dict[str, list[Decoded]] = {way: [] for way in starts}
        for number in range(ROUNDS):
            order = [*starts]
            for way in order[number % len(order) :] + order[: number % len(order)]:
                runs[way].append(decoder.run(way, starts[way], width, count, forced))
        speeds = {way: [width * count / run.seconds for run in done] for way, done in runs.items()}
        yield {
            "model": file.stem,
            "schema": name,
            "width": width,
            "tokens": width * count,
            "vocabulary": decoder.llama.vocab.size,
            "guidance_seconds": round(decoder.guidance_seconds, 3),
            "rejections": {way: done[0].rejections for way, done in runs.items()},
            "other_choices": {way: done[0].differing for way, done in runs.items()},
            "tokens_per_second": {way: [round(speed, 1) for speed in values] for way, values in speeds.items()},
            "ratios": {way: dataclasses.asdict(ratio(speeds[way], speeds[OURS])) for way in (ON_DEMAND, AHEAD)},
        }


def count_by_form(cases: Iterable[Verdict]) -> list[dict[str, Any]]:
    """Return how many cases each form has, and how many of them each side judges as wanted."""
    counts: dict[str, Counter[str]] = {}
    for each in cases:
        right = {"ours": each.ours == each.wanted, "llguidance": each.llguidance == each.wanted}
        counts.setdefault(each.form, Counter()).update(cases=1, **right)
    return [{"form": form, **count} for form, count in counts.items()]


def goals(rows: Sequence[Mapping[str, Any]], counts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the goals: the speed at each width with masks on demand, and the cases."""
    judged: list[dict[str, Any]] = []
    for width in WIDTHS:
        cells = ((row, row["ratios"][ON_DEMAND]) for row in rows if row["width"] == width)
        speeds = [
            FoundValue(of["median"], f"{row['model']}, {row['schema']}", of["rounds"], (of["low"], of["high"]))
            for row, of in cells
        ]
        name = f"tokens a second, llguidance ÷ ours, width {width}"
        judged.append(dataclasses.asdict(judge(WantedGoal(name, KEPT_SPEED, speeds))))
    for count in counts:
        name = f"cases that llguidance judges as wanted: {count['form']}"
        judged.append(dataclasses.asdict(exactly(name, count["llguidance"], count["cases"])))
    return judged


def main(files: Sequence[str]) -> None:
    """Compare the cases and the speed, then print and write the results."""
    models = [Path(file).resolve() for file in files] or [_TINY / "large.gguf"]
    spec = EngineSpec(file=str(_TINY / "small.gguf"), context=64, slots=1, threads=1)
    cases = [*verdicts(Llama(spec))]
    differing = [each._asdict() for each in cases if each.llguidance != each.wanted]
    for each in differing:
        print(each)
    rows = []
    for model in models:
        for row in measure(model, TOKENS if model.parent == _TINY else TOKENS // 3):
            rows.append(row)
            print({key: row[key] for key in ("model", "schema", "width", "rejections", "other_choices", "ratios")})
    counts = count_by_form(cases)
    results = {
        "command": f"python -m benchmarks.grammar {' '.join(model.name for model in models)}",
        "machine": machine(),
        "versions": versions("llama-cpp-python", "llguidance", "numpy"),
        "cases": counts,
        "differing": differing,
        "rows": rows,
        "goals": goals(rows, counts),
    }
    write(FOLDER / "grammar.json", results)


if __name__ == "__main__":
    main(sys.argv[1:])
