"""Run the engine: take commands; choose this step's tokens; decode; sample; emit."""

import sys
import time
import traceback
from collections import Counter

from orchestrator.engine import protocol
from orchestrator.engine.contract import NOT_SET_UP, EngineSpec, EngineStats, Finish, Message
from orchestrator.engine.errors import BadGrammar, BrokenModel, EngineError, PromptTooLong
from orchestrator.engine.kv.layout import Layout, Reading, may_change
from orchestrator.engine.llama import CannotLoad, Llama, Logits, Tokens, as_tokens
from orchestrator.engine.speculation.speculator import Drafts
from orchestrator.engine.speculation.verify import verified
from orchestrator.engine.step_cost.calibration import AttentionTrial, assumed_curve, known_curve
from orchestrator.engine.step_cost.idle import IdleMeasurements, StepTimes
from orchestrator.engine.step_cost.learned import LEARNED_EVERY, Curves
from orchestrator.engine.step_cost.model import attended, turn
from orchestrator.engine.worker.batching import Prefill, chunks_of, group_equal_chunks
from orchestrator.engine.worker.chat import ChatTemplate
from orchestrator.engine.worker.contention import CpuUse
from orchestrator.engine.worker.link import Link
from orchestrator.engine.worker.outbox import Outbox
from orchestrator.engine.worker.priority import ALIKE
from orchestrator.engine.worker.prompt import prompt_tokens
from orchestrator.engine.worker.sequence import DeadEnd, NotFinite, Sequence
from orchestrator.engine.worker.sequences import Sequences
from orchestrator.engine.worker.threads import ThreadTuner
from orchestrator.engine.worker.warm import WarmPrefixes

_Share = tuple[Sequence, Tokens]
"""A sequence and tokens that a step computes: part of its prompt, or the drafts behind its last token."""
_NONE = as_tokens(())
_READ_A_SECOND = 1e6
"""Characters of a prompt that become tokens in a second, at least. Nothing else happens meanwhile."""


class Loop:
    """The state of a running engine."""

    def __init__(self, llama: Llama, spec: EngineSpec, link: Link, drafts: Drafts | None) -> None:
        self._llama = llama
        self._spec = spec
        self._drafts = drafts
        self._tuner = ThreadTuner(llama.threads)
        self._cpu = CpuUse()
        self._begin_learning()
        times = [StepTimes(llama, spec, lambda: self._curves)]
        if drafts is not None and drafts.draft is not None:
            times.append(drafts.draft.step_times())
        self._idle = IdleMeasurements(AttentionTrial(llama, spec), times)
        self._link = link
        self._outbox = Outbox(link)
        self._template = ChatTemplate(llama.chat_template(), llama.info.bos, llama.info.eos)
        self._counts: Counter[str] = Counter()
        self._sequences = Sequences(llama, self._counts, self._let_go)
        self._warm = WarmPrefixes(llama, spec, self._template)
        self._warm.restore(self._sequences.slots)
        self._llama_seconds = self._own_seconds = 0.0

    def run(self) -> None:
        """Work until the parent says stop or goes away."""
        while not self._link.closed:
            if not (self._sequences.all or self._link.resting):
                self._lay_out_anew()
            commands = self._receive()
            started, inside = self._link.awake_since, self._llama_seconds
            self._take(commands)
            for sequence in self._sequences.late(started):
                self._end(sequence, "deadline")
            if not (self._link.resting or self._link.closed):
                self._step()
            self._outbox.flush()
            self._own_seconds += time.monotonic() - started - (self._llama_seconds - inside)

    def _step(self) -> None:
        self._sequences.admit()
        shares = self._choose()
        if self._sequences.queue and not (shares or self._sequences.decoding or self._sequences.prefilling):
            raise RuntimeError("the queue does not move although nothing runs")
        for together in shares:
            self._compute(together)

    def _begin_learning(self) -> None:
        """Take the model's curve as it was measured before, or else as it is assumed, and learn on from there."""
        llama, spec = self._llama, self._spec
        self._learned_attention = llama.flash_attention
        measured = known_curve(llama, spec)
        self._curves = Curves(
            llama.threads,
            measured or assumed_curve(llama),
            widest=min(llama.sequences, llama.micro_batch, llama.max_outputs),
            trusted=measured is not None,
            known=lambda threads: known_curve(llama, spec, threads),
        )
        self._layouts = {llama.split: self._curves}
        changeable = llama.can_keep and may_change(spec, llama.flash_attention)
        self._layout = Layout(split=llama.split) if changeable else None

    # Take commands

    def _receive(self) -> list[protocol.Command]:
        """Return what the parent says. While there is nothing else to do, measure a step now and then until it does."""
        if self._sequences.all:
            return self._link.receive(0.0)
        while True:
            wait = None if self._link.resting else self._idle.wait()
            commands = self._link.receive(wait)
            if commands or wait is None or self._link.resting or self._link.closed:
                return commands
            self._measure()

    def _measure(self) -> None:
        """Measure the model for one step, which changes the cache only while the kind of attention is tried out."""
        trial = self._idle.trial
        if trial.wait(time.monotonic()) is not None and not trial.begun:
            self._sequences = Sequences(self._llama, self._counts, self._let_go)
        self._idle.step()
        if trial.begun and trial.ended:
            self._end_trial()

    def _end_trial(self) -> None:
        """Go on with the kind of attention that is in force now. What the cache held is gone."""
        self._idle.trial.interrupt()
        if self._llama.flash_attention != self._learned_attention:
            self._begin_learning()
        self._sequences = Sequences(self._llama, self._counts, self._let_go)
        self._warm.restore(self._sequences.slots)

    def _make_way(self) -> None:
        """End what is measured in idle moments, since there is work to do."""
        self._idle.interrupt()
        if self._idle.trial.begun:
            self._end_trial()

    def _take(self, commands: list[protocol.Command]) -> None:
        for command in commands:
            match command:
                case protocol.Submit(number) | protocol.Count(number):
                    self._guarded(number, command)
                case protocol.Cancel(number):
                    if number in self._sequences.all:
                        self._end(self._sequences.all[number], "cancelled")
                case protocol.SetThreads(threads):
                    self._set_threads(threads)
                case protocol.GetStats(number):
                    self._outbox.add(protocol.Stats(number, self._snapshot()))
                case protocol.Stop():
                    self._warm.save(self._sequences.slots)
                    self._link.closed = True
                case protocol.Load():
                    raise protocol.ProtocolError("a second Load")

    def _guarded(self, number: int, command: protocol.Submit | protocol.Count) -> None:
        """Take a request; whatever is wrong with it concerns nobody else."""
        try:
            if isinstance(command, protocol.Submit):
                self._submit(command)
            else:
                self._outbox.add(protocol.Counted(number, len(self._prompt(command.messages))))
        except EngineError as error:
            self._refuse(number, error)
        except Exception as error:  # noqa: BLE001 (boundary: one request's failure must not take the others with it)
            traceback.print_exc(file=sys.stderr)
            self._refuse(number, EngineError(f"the engine failed on this request: {error!r}"))

    def _submit(self, command: protocol.Submit) -> None:
        request = command.generation
        prompt = self._prompt(request.messages)
        limit = self._llama.context_limit
        left = limit - len(prompt)
        answer = request.max_tokens or max(1, left)
        if request.fit is not None and left >= min(request.fit, request.max_tokens or request.fit):
            answer = min(answer, left)
        if answer > left or (request.max_tokens is None and left < (request.fit or 1)):
            raise PromptTooLong(len(prompt), limit, answer)
        grammar = None if request.grammar is None else self._llama.grammars.start(request.grammar)
        sequence = Sequence(
            command.seq,
            request,
            prompt,
            answer=answer,
            stops=self._template.stops,
            grammar=grammar,
            stream=command.stream,
        )
        self._make_way()
        self._sequences.add(sequence)
        self._counts["prompt_tokens"] += len(prompt)

    def _prompt(self, messages: tuple[Message, ...]) -> Tokens:
        self._link.heartbeat(sum(len(text) for _, text in messages) / _READ_A_SECOND)
        before = self._llama.vocab.llama_seconds
        tokens = prompt_tokens(self._llama.vocab, self._template.segments(messages))
        self._llama_seconds += self._llama.vocab.llama_seconds - before
        if not len(tokens):
            raise PromptTooLong(0, self._llama.context_limit)
        return tokens

    # Choose

    def _choose(self) -> list[list[_Share]]:
        """Return what this step computes, a list for each call of llama_decode.

        Streams of their own are computed together only where they have equally many tokens: all that decode in one
        call, prompts side by side with parts of one length in another.
        """
        batch = self._llama.batch
        decode = self._sequences.make_room(self._decoders())
        prefilling = self._sequences.prefilling
        drafts = self._propose(decode, bool(prefilling))
        shares = list(zip(decode, drafts, strict=True))
        shares.sort(key=_seq)
        if not prefilling:
            return [shares] if shares else []
        needs = [Prefill(s.computed, self._sequences.stretch(s)) for s in prefilling]
        ahead = sum(s.priority <= decode[0].priority + ALIKE for s in prefilling) if decode else 0
        decoding = len(decode) + sum(map(len, drafts))
        chunks = []
        for index, count in chunks_of(needs, decoding=decoding, batch=batch.capacity, ahead=ahead):
            sequence = prefilling[index]
            chunks.append((sequence, sequence.prefill_tokens[sequence.computed : sequence.computed + count]))
        if self._llama.split:
            chunks.sort(key=_seq)
            parts = [(sequence.seq, len(tokens)) for sequence, tokens in chunks]
            alike = group_equal_chunks(parts, self._llama.micro_batch)
            return [*([shares] if shares else []), *([chunks[index] for index in group] for group in alike)]
        return [[*shares, *chunks]] if shares or chunks else []

    def _decoders(self) -> list[Sequence]:
        """Return the running sequences that decode in this step: as many as make most tokens a second, in turns."""
        running = self._sequences.decoding[: min(self._llama.micro_batch, self._llama.max_outputs)]
        if len(running) == 1:
            running[0].waited = 0
            return running
        width = self._curves.next_width([sequence.length for sequence in running])
        chosen = [running[index] for index in turn(width, [sequence.waited for sequence in running])]
        for sequence in running:
            sequence.waited += 1
        for sequence in chosen:
            sequence.waited = 0
        return chosen

    def _propose(self, decode: list[Sequence], crowded: bool) -> list[Tokens]:
        """Return the draft tokens of each; none while prompts wait, which need the time more."""
        if self._drafts is None or crowded or not decode:
            return [_NONE] * len(decode)
        slots = self._sequences.slots
        room = slots.room(min(self._llama.max_outputs, self._llama.batch.capacity)) - len(decode)
        self._link.heartbeat(self._curves.now.seconds(len(decode), len(decode)))
        before = self._drafts.llama_seconds
        drafts = self._drafts.propose(decode, self._curves.now, room)
        self._llama_seconds += self._drafts.llama_seconds - before
        slots.make_room(len(decode) + sum(map(len, drafts)))
        return drafts

    # Decode, sample, emit

    def _compute(self, shares: list[_Share]) -> None:
        """Do one call of llama_decode, and what follows from it."""
        started = time.monotonic()
        batch, curve = self._llama.batch, self._curves.now
        batch.clear()
        asked: list[_Share] = []
        depths: list[int] = []
        cells = 0
        for share in shares:
            sequence, tokens = share
            if sequence.decodes:
                depth = sequence.length
                batch.add_one(sequence.seq, depth - 1, sequence.output[-1])
                cells += depth
                if len(tokens):
                    batch.add(sequence.seq, depth, tokens, len(tokens))
                    cells += attended(depth, len(tokens))
                depths.append(depth)
                asked.append(share)
            elif self._add_chunk(sequence, tokens):
                asked.append((sequence, _NONE))
        size, running, prompts = batch.size, len(depths), len(shares) - len(depths)
        self._link.heartbeat(0.0 if curve.is_short(size, cells) else curve.seconds(size, len(shares), cells))
        width = curve.filled(running, cells) if size == running else 0
        seconds, logits = self._decode(width)
        disturbed = self._cpu.disturbed(self._llama.threads)
        if not prompts:
            filled = width if batch.size == width else 0
            self._curves.observe(size, running, seconds, cells, filled, disturbed=disturbed)
            if self._layout is not None and not disturbed and self._counts["steps"] % LEARNED_EVERY == 0:
                reading = Reading(running, cells, self._sequences.slots.pooled_cells)
                self._layout.record(reading, seconds, self._layouts[True].now, LEARNED_EVERY)
        drafted, accepted = self._sample(asked, logits)
        self._counts["decode_steps"] += running > 0
        if self._tuner.granted > 1:
            self._tune(size, len(shares), cells, seconds, disturbed=disturbed)
        if drafted and not (prompts or disturbed) and self._drafts is not None:
            self._drafts.record(curve, depths, drafted, accepted, time.monotonic() - started + self._drafts.seconds)

    def _tune(self, tokens: int, sequences: int, cells: int, seconds: float, *, disturbed: bool) -> None:
        """Go over to fewer threads where other processes hold some of the cores, and back when they are free."""
        tuner = self._tuner
        expected = self._curves.of(tuner.granted).seconds(tokens, sequences, cells)
        tuner.observe(seconds, expected, time.monotonic(), disturbed=disturbed)
        if tuner.threads != self._llama.threads:
            self._use_threads(tuner.threads)

    def _add_chunk(self, sequence: Sequence, chunk: Tokens) -> bool:
        """Add a chunk of a sequence's prefill to the batch, and return whether its logits are wanted.

        They are where the prompt ends with the chunk. A sequence that was preempted already has its next token, which
        is decoded after its prefill.
        """
        wanted = sequence.computed + len(chunk) == len(sequence.prefill_tokens) and not sequence.output
        self._llama.batch.add(sequence.seq, sequence.computed, chunk, int(wanted))
        self._sequences.computed(sequence, chunk)
        return wanted

    def _decode(self, width: int) -> tuple[float, Logits]:
        self._cpu.start()
        logits = self._llama.decode(width)
        seconds = self._cpu.stop()
        self._llama_seconds += seconds
        self._counts["steps"] += 1
        return seconds, logits

    def _sample(self, asked: list[_Share], logits: Logits) -> tuple[int, int]:
        """Let sequences with their drafts go on, and return how many tokens were drafted and accepted."""
        best = logits.argmax(axis=1).tolist() if len(logits) else []
        row = drafted = accepted = 0
        for sequence, drafts in asked:
            meant = self._drafts.drafted(sequence) if len(drafts) and self._drafts is not None else 0
            end = row + len(drafts) + 1
            accepted += min(meant, self._go_on(sequence, drafts, meant, logits[row:end], best[row:end]))
            drafted += meant
            row = end
        self._counts["drafted"] += drafted
        self._counts["accepted"] += accepted
        return drafted, accepted

    def _go_on(self, sequence: Sequence, drafts: Tokens, meant: int, logits: Logits, best: list[int]) -> int:
        """Add the tokens that a step has brought to a sequence, and return how many drafts are among them.

        The first `meant` of the drafts are no fillers.
        """
        before, piece = len(sequence.output), self._llama.vocab.piece
        try:
            for token in (
                verified(drafts, lambda row: sequence.choose(logits[row], best[row], piece))
                if len(drafts)
                else (sequence.choose(logits[0], best[0], piece),)
            ):
                self._advance(sequence, token)
                if sequence.finish is not None:
                    break
        except DeadEnd:
            self._fail(sequence, BadGrammar("no token of the model's vocabulary continues the grammar"))
        except NotFinite:
            self._fail(sequence, BrokenModel("the model's logits are NaN: its weights or its KV types are unfit"))
        accepted = max(0, len(sequence.output) - before - 1)
        if self._drafts is not None and before and sequence.number in self._sequences.all:
            self._drafts.observe(sequence, meant, accepted)
            if accepted < len(drafts):
                self._llama.truncate(sequence.seq, sequence.length - 1)
        return accepted

    def _advance(self, sequence: Sequence, token: int) -> None:
        end = token in self._llama.vocab.end
        text = sequence.take(token, b"" if end else self._llama.vocab.piece(token), end)
        self._counts["output_tokens"] += not end
        self._say(sequence, text)
        if sequence.finish is not None:
            self._finish(sequence)
        elif len(sequence.output) == 1:
            self._sequences.begin_decoding(sequence)

    def _end(self, sequence: Sequence, finish: Finish) -> None:
        self._say(sequence, sequence.end(finish))
        self._finish(sequence)

    def _say(self, sequence: Sequence, text: str) -> None:
        if text and sequence.stream:
            self._outbox.say(sequence.number, text)

    def _finish(self, sequence: Sequence) -> None:
        self._outbox.add(sequence.report())
        self._counts["cancelled" if sequence.finish == "cancelled" else "finished"] += 1
        self._remove(sequence)

    def _fail(self, sequence: Sequence, error: EngineError) -> None:
        self._refuse(sequence.number, error)
        self._remove(sequence)

    def _refuse(self, number: int, error: EngineError) -> None:
        self._outbox.refuse(number, error)
        self._counts["failed"] += 1

    def _remove(self, sequence: Sequence) -> None:
        """Forget a sequence, wherever it is, and free what it holds."""
        self._sequences.remove(sequence)
        self._counts["grammar_rejections"] += sequence.rejections
        sequence.close()
        if not self._sequences.all:
            self._idle.worked()

    def _let_go(self, sequence: Sequence) -> None:
        if self._drafts is not None:
            self._drafts.forget(sequence)

    def _lay_out_anew(self) -> None:
        """Change where the cells lie, if that is due. What finished prompts left is forgotten, which is part of the
        price; known beginnings are taken from disk again."""
        layout, llama = self._layout, self._llama
        if layout is None or not layout.regret:
            return
        lost = min(self._sequences.slots.tree.cells, llama.context_limit)
        if not layout.due(llama.open_seconds + lost * self._curves.now.prefill):
            return
        self._link.heartbeat(2 * llama.open_seconds)
        layout.change()
        try:
            llama.lay_out(self._spec, split=layout.split)
        except CannotLoad as error:
            print(f"the cache stays as it was: {error}", file=sys.stderr, flush=True)
            self._layout = None
            llama.lay_out(self._spec, split=not layout.split)
        self._counts["layout_changes"] += 1
        self._curves = self._layouts.setdefault(llama.split, self._curves.relaid(llama.threads, fills=llama.split))
        self._curves.use(llama.threads)
        self._sequences = Sequences(llama, self._counts, self._let_go)
        self._warm.restore(self._sequences.slots)

    def _set_threads(self, threads: int) -> None:
        """Compute with this many threads, or with fewer where other processes hold some of the cores."""
        self._tuner.grant(threads)
        self._use_threads(self._tuner.threads)

    def _use_threads(self, threads: int) -> None:
        self._llama.set_threads(threads)
        self._curves.use(threads)
        if self._drafts is not None and self._drafts.draft is not None:
            self._drafts.draft.set_threads(threads)

    def _snapshot(self) -> EngineStats:
        return EngineStats(
            **self._counts,
            restored_prefixes=self._warm.restored,
            restored_tokens=self._warm.restored_tokens,
            saved_seconds=self._drafts.ledger.saved if self._drafts else 0.0,
            speculation=self._drafts.told if self._drafts else NOT_SET_UP,
            llama_seconds=self._llama_seconds,
            own_seconds=self._own_seconds,
            running=len(self._sequences.decoding),
            prefilling=len(self._sequences.prefilling),
            queued=len(self._sequences.queue),
            retained=self._sequences.slots.retained,
            used_cells=self._sequences.slots.used_cells,
            cells=self._llama.cells,
            threads=self._llama.threads,
            calibrated=self._idle.wait() is None,
            split_cache=self._llama.split,
        )


def _seq(share: _Share) -> int:
    return share[0].seq
