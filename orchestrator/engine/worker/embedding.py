"""Run an engine that embeds, batch by batch: take texts; fill a batch; compute it; answer."""

import time
from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

from orchestrator.engine import protocol
from orchestrator.engine.contract import NOT_SET_UP, EngineStats, Vectors
from orchestrator.engine.errors import BrokenModel, EngineError
from orchestrator.engine.llama import Embedder, Tokens, Vocabulary
from orchestrator.engine.worker.contention import CpuUse
from orchestrator.engine.worker.link import Link, Outbox
from orchestrator.engine.worker.prompts import LongTexts, is_long, prepared_or_error
from orchestrator.engine.worker.raw_prompts import convert_text
from orchestrator.engine.worker.spinning import Spinning
from orchestrator.engine.worker.threads import ThreadTuner

_Request = protocol.Embed | protocol.Tokenize | protocol.Detokenize  # all need the vocabulary
_Prepared = list[Tokens] | protocol.Tokenized | protocol.Rendered  # the tokens of the texts to embed, or the answer


class TextMaker:
    """Tokenizes texts for one model. It belongs to the thread that `vocab` belongs to."""

    def __init__(self, embedder: Embedder, vocab: Vocabulary) -> None:
        self._embedder = embedder
        self._vocab = vocab

    def prepare(self, command: _Request) -> _Prepared:
        """Return the tokens to embed, or the answer. Raises TextTooLong, BadPrompt."""
        if not isinstance(command, protocol.Embed):
            return convert_text(self._vocab, command)
        embedder, vocab, query = self._embedder, self._vocab, command.query
        if query is None:
            return [embedder.tokenize(vocab, index, text) for index, text in enumerate(command.texts)]
        return [embedder.tokenize_pair(vocab, index, query, text) for index, text in enumerate(command.texts)]


@dataclass(slots=True, eq=False)
class _Job:
    number: int
    texts: list[Tokens]
    begun: int = 0  # texts that are computed or in the batch
    vectors: list[Vectors] = field(default_factory=list)  # of the first texts, as far as they are computed


class EmbeddingLoop:
    def __init__(self, embedder: Embedder, link: Link, spinning: Spinning) -> None:
        self._embedder = embedder
        self._link = link
        self._jobs: deque[_Job] = deque()  # not all of their texts are in a batch yet
        self._counts: Counter[str] = Counter()
        self._outbox = Outbox(link)
        self._maker = TextMaker(embedder, embedder.vocab)
        self._long: LongTexts[_Request, _Prepared] = LongTexts(
            lambda: TextMaker(embedder, embedder.vocab.for_thread()), link.wake
        )
        self._llama_seconds = 0.0
        self._tuner = ThreadTuner(embedder.threads)
        self._cpu = CpuUse()
        self._spinning = spinning

    def run(self) -> None:
        """Serve the parent until it sends Shutdown or closes its end of the socket."""
        while not self._link.closed:
            for command in self._link.receive(0.0 if self._jobs else None):
                self._take(command)
            for job in self._long.take():
                assert job.prepared is not None, "it is done"
                self._dispatch_prepared(job.command, job.prepared)
            if self._jobs and not (self._link.resting or self._link.closed):
                self._step()
            self._outbox.flush()

    def _take(self, command: protocol.EngineCommand) -> None:
        match command:
            case protocol.Embed() | protocol.Tokenize() | protocol.Detokenize():
                if is_long(command):
                    self._long.give(command)
                else:
                    self._link.heartbeat(0.0)
                    self._dispatch_prepared(command, prepared_or_error(self._maker, command))
            case protocol.Cancel(number):
                remaining = deque(job for job in self._jobs if job.number != number)
                was_long = isinstance(self._long.cancel(number), protocol.Embed)
                self._counts["cancelled"] += len(self._jobs) - len(remaining) + was_long
                self._jobs = remaining
            case protocol.SetThreads(threads):
                self._tuner.grant(threads)
                self._embedder.set_threads(self._tuner.threads)
            case protocol.GetStats(number):
                self._outbox.add(protocol.Stats(number, self._snapshot()))
            case protocol.Shutdown():
                self._link.closed = True
            case _:
                raise protocol.ProtocolError(f"an engine that embeds was sent {type(command).__name__}")

    def _dispatch_prepared(self, command: _Request, prepared: _Prepared | EngineError) -> None:
        if isinstance(prepared, EngineError):
            self._refuse(command.seq, prepared)
        elif isinstance(prepared, list):
            self._jobs.append(_Job(command.seq, prepared))
            self._counts["prompt_tokens"] += sum(map(len, prepared))
        else:
            self._outbox.add(prepared)

    def _step(self) -> None:
        filled = self._fill()
        embedder, expected = self._embedder, sum(len(tokens) for _, tokens in filled) * self._embedder.token_seconds
        self._link.heartbeat(expected)
        self._cpu.start()
        vectors = embedder.embed([tokens for _, tokens in filled])
        seconds = self._cpu.stop()
        self._llama_seconds += seconds
        self._counts["steps"] += 1
        self._spinning.after_step(self._cpu, embedder.threads, self._tuner.granted)
        self._tuner.observe(seconds, expected, time.monotonic(), disturbed=self._cpu.disturbed(embedder.threads))
        if self._tuner.threads != embedder.threads:
            embedder.set_threads(self._tuner.threads)
        for (job, _), vector in zip(filled, vectors, strict=True):
            job.vectors.append(vector)
            if len(job.vectors) == len(job.texts):
                self._answer(job)

    def _fill(self) -> list[tuple[_Job, Tokens]]:
        filled: list[tuple[_Job, Tokens]] = []
        room = self._embedder.limit
        while self._jobs and len(filled) < self._embedder.slots:
            job = self._jobs[0]
            tokens = job.texts[job.begun]
            room -= len(tokens)
            if room < 0:
                break
            self._jobs.popleft()
            filled.append((job, tokens))
            job.begun += 1
            if job.begun < len(job.texts):
                self._jobs.append(job)  # requests take turns: a small one need not wait for a large one
        return filled

    def _answer(self, job: _Job) -> None:
        vectors = np.stack(job.vectors)
        broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(broken):
            message = f"the vector of text {broken[0]} is zero or not finite: the model's weights are unfit"
            self._refuse(job.number, BrokenModel(message))
            return
        tokens = sum(map(len, job.texts))
        self._outbox.add(protocol.Embedded(job.number, tokens, vectors.astype("<f4").tobytes()))
        self._counts["finished"] += 1

    def _refuse(self, number: int, error: EngineError) -> None:
        self._outbox.refuse(number, error)
        self._counts["failed"] += 1

    def _snapshot(self) -> EngineStats:
        return EngineStats(
            speculation=NOT_SET_UP,
            **self._counts,
            llama_seconds=self._llama_seconds,
            queued=len(self._jobs) + self._long.pending,
            threads=self._embedder.threads,
            calibrated=True,
            split_cache=False,
            keeps_scores=False,
            cells_by_role={},
            step_times=None,
        )
