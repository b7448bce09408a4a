"""Run an engine that generates text, step by step: take commands; schedule; decode; sample; emit."""

import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from orchestrator.engine import protocol
from orchestrator.engine.contract import NOT_SET_UP, EngineSpec, EngineStats, Finish, Generation, StepTimes
from orchestrator.engine.errors import (
    AdapterNotLoaded,
    BadGrammar,
    BadRequest,
    BrokenModel,
    EngineError,
    PromptTooLong,
)
from orchestrator.engine.kv.layout import AttentionReads, CacheLayout, layout_may_change, pool_passes
from orchestrator.engine.kv.prompt_history import PromptHistory
from orchestrator.engine.llama import CannotLoad, Llama, Logits, Tokens, as_tokens
from orchestrator.engine.speculation.speculator import Speculator
from orchestrator.engine.step_cost.attention import AttentionChoice
from orchestrator.engine.step_cost.attention_trial import AttentionTrial, measured_attention, note_attention
from orchestrator.engine.step_cost.calibration import assumed_step_costs, stored_step_costs, widest
from orchestrator.engine.step_cost.idle import IdleMeasurements, RepeatedCalibration
from orchestrator.engine.step_cost.learned import LEARNED_EVERY, LearnedStepCosts
from orchestrator.engine.step_cost.model import attended_cells, divide_step
from orchestrator.engine.worker.adapters import AdapterCosts, AdapterTurns
from orchestrator.engine.worker.batching import (
    SHORT_CHUNK,
    BatchTurns,
    Prefill,
    chunks_of,
    group_equal_chunks,
    join_padded,
    take_turns,
)
from orchestrator.engine.worker.call_grammars import CallGrammars
from orchestrator.engine.worker.chat import continued
from orchestrator.engine.worker.contention import CpuUse
from orchestrator.engine.worker.link import Link, Outbox
from orchestrator.engine.worker.logprobs import AnswerLogprobs, PromptLogprobs
from orchestrator.engine.worker.penalties import Penalties
from orchestrator.engine.worker.priority import ALIKE
from orchestrator.engine.worker.prompt_reports import PendingPrompt, PromptReports
from orchestrator.engine.worker.prompts import (
    LongTexts,
    Prepared,
    Prompt,
    PromptMaker,
    Request,
    is_long,
    prepared_or_error,
)
from orchestrator.engine.worker.raw_prompts import check_ids
from orchestrator.engine.worker.repetition import RepetitionGuard, SingleBytes
from orchestrator.engine.worker.sampling import verify_drafts
from orchestrator.engine.worker.sequence import Biases, LogitsAreNaN, NoTokenAllowed, Sequence
from orchestrator.engine.worker.sequences import Sequences
from orchestrator.engine.worker.spinning import Spinning
from orchestrator.engine.worker.stored_prefixes import StoredPrefixes
from orchestrator.engine.worker.system_prompts import prompt_starts
from orchestrator.engine.worker.thinking import ThoughtFormat, Thoughts
from orchestrator.engine.worker.threads import ThreadTuner
from orchestrator.registry.call_syntax import CALL_MARKS, FAMILIES
from orchestrator.registry.options import Adapters, FlashAttention, SamplingOptions

# A sequence, and what a step computes for it: a chunk of its prefill, or draft tokens after its last token.
_Scheduled = tuple[Sequence, Tokens]


# The rows of logits that a step computes for a sequence.
class _Outputs(NamedTuple):
    sequence: Sequence
    drafts: Tokens  # draft tokens that the rows verify
    prompt_rows: int = 0  # rows for logprobs of the prompt; they come first
    position: int = 0  # of the first of these rows in the prompt
    samples: bool = True  # whether the next token is sampled, from the row that follows


# The most tokens that are expected for the mark that opens a thought and white space around thoughts.
MARK_TOKENS = 16
SAVE_SECONDS = 2.0  # for writing prompts to disk after Shutdown; the parent waits for five
_NONE = as_tokens(())


class Loop:
    """A running engine: its model, its sequences, and what it has learned about step times."""

    def __init__(
        self, llama: Llama, spec: EngineSpec, link: Link, speculator: Speculator | None, spinning: Spinning
    ) -> None:
        self._llama = llama
        self._spec = spec
        self._speculator = speculator
        self._tuner = ThreadTuner(llama.threads)
        self._cpu = CpuUse()
        self._spinning = spinning
        self._turns = AdapterTurns()
        self._batch_turns = BatchTurns()
        self._adapter_costs = AdapterCosts()
        self._learned: dict[tuple[FlashAttention, bool], LearnedStepCosts] = {}  # by attention and layout
        self._step_costs = self._costs_of_context()
        self._layout = self._layout_of_context()
        self._attention = self._attention_choice()
        calibrations = [RepeatedCalibration(llama, spec, lambda: self._step_costs, lambda: self._free_cells)]
        for drafter in speculator.drafters.values() if speculator is not None else ():
            calibrations.extend(drafter.calibrations())
        self._idle = IdleMeasurements(AttentionTrial(llama, spec), calibrations)
        self._link = link
        self._outbox = Outbox(link)
        self._reports = PromptReports()
        template = llama.chat_template()
        self._thinking = ThoughtFormat(llama.vocab, template)
        self._prompts = PromptMaker(llama.vocab, template, self._thinking, llama.context_limit)
        self._long: LongTexts[Request, Prepared] = LongTexts(
            lambda: PromptMaker(llama.vocab.for_thread(), template, self._thinking, llama.context_limit), link.wake
        )
        self._call_marks = llama.vocab.silent(CALL_MARKS)
        self._single_bytes = SingleBytes(llama.vocab)
        self._ends = as_tokens(sorted(llama.vocab.end))
        self._counts: Counter[str] = Counter()
        self._prompt_starts = prompt_starts(llama, self._prompts.template, spec.system_prompts)
        self._stored_prefixes = StoredPrefixes(
            llama, spec, lambda: self._step_costs.current, link.heartbeat, self._prompt_starts
        )
        self._history = PromptHistory(llama.vocab.is_control)
        self._sequences = self._without_sequences()
        self._llama_seconds = self._own_seconds = 0.0
        self._latest_step = 0, 0, 0.0  # sequences, tokens and seconds of the latest one without a prompt

    @property
    def thinks(self) -> bool:
        """Whether the model is known to think before it answers."""
        return self._thinking.markers is not None

    def run(self) -> None:
        """Serve the parent until it sends Shutdown or closes its end of the socket."""
        while not self._link.closed:
            if not (self._sequences.all or self._link.resting):
                self._change_context()
            commands = self._receive()
            started, llama_seconds = self._link.awake_since, self._llama_seconds
            self._handle(commands)
            for job in self._long.take():
                assert job.prepared is not None, "it is done"
                self._dispatch_prepared(job.command, job.prepared, time.monotonic() - job.since)
            for sequence in self._sequences.overdue(started):
                self._finish_early(sequence, "deadline")
            if not (self._link.resting or self._link.closed):
                self._step()
            for number, file in self._stored_prefixes.write_exports():
                self._outbox.add(protocol.Exported(number, file))
            self._outbox.flush()
            self._own_seconds += time.monotonic() - started - (self._llama_seconds - llama_seconds)

    @property
    def _free_cells(self) -> int:
        return self._llama.cells - self._sequences.slots.tree.cells

    def _without_sequences(self) -> Sequences:
        self._history.forget_cells()
        return Sequences(
            self._llama,
            self._counts,
            self._forget_drafts,
            self._prefill_seconds,
            self._prompt_starts,
            self._history,
            self._stored_prefixes.restore,
        )

    def _prefill_seconds(self, start: int, count: int) -> float:
        return self._step_costs.current.prompt_seconds(start, count)

    def _step(self) -> None:
        if entered := self._sequences.admit():
            prompts = tuple(b"".join(sequence.blocks) for sequence in entered)
            self._outbox.add(protocol.Started(tuple(sequence.number for sequence in entered), prompts))
        self._report_prompts()
        self._outbox.flush()  # if the process dies in the step, the parent knows which requests are still queued
        calls = self._schedule()
        if self._sequences.queue and not (calls or self._sequences.decoding or self._sequences.prefilling):
            raise RuntimeError("requests are queued, but none can be admitted although nothing runs")
        for scheduled in calls:
            self._compute(scheduled)

    def _report_prompts(self) -> None:
        queue = [
            (sequence.number, ahead)
            for ahead, sequence in enumerate(self._sequences.queue)
            if sequence.stream and not sequence.output
        ]
        reading = [
            PendingPrompt(sequence.number, sequence.computed, len(sequence.prefill_tokens))
            for sequence in self._sequences.prefilling
            if sequence.stream and not sequence.output
        ]
        if report := self._reports.changes(queue, reading, time.monotonic()):
            self._outbox.add(report)

    def _costs_of_context(self) -> LearnedStepCosts:
        llama, spec = self._llama, self._spec
        kind = llama.flash_attention, llama.split
        if kind not in self._learned:
            measured = stored_step_costs(llama, spec)
            other_layout = self._learned.get((llama.flash_attention, not llama.split))
            if measured is None and other_layout is not None:
                costs = other_layout.for_new_layout(llama.threads, pads=llama.split)
            else:
                costs = LearnedStepCosts(
                    llama.threads,
                    measured or assumed_step_costs(llama),
                    widest=widest(llama),
                    trusted=measured is not None,
                    known=lambda threads: stored_step_costs(llama, spec, threads),
                )
            self._learned[kind] = costs
        self._learned[kind].use_threads(llama.threads)
        return self._learned[kind]

    def _layout_of_context(self) -> CacheLayout | None:
        llama = self._llama
        changeable = llama.can_fork and not llama.keeps_states and layout_may_change(self._spec, llama.flash_attention)
        return CacheLayout(split=llama.split) if changeable else None

    def _attention_choice(self) -> AttentionChoice | None:
        measured = measured_attention(self._llama, self._spec)
        return None if measured is None else AttentionChoice(measured)

    # Take commands

    def _receive(self) -> list[protocol.EngineCommand]:
        if self._sequences.all or self._stored_prefixes.exporting:
            return self._link.receive(0.0)
        stored = self._stored_prefixes
        while True:
            waits = [] if self._link.resting or self._long.pending else [stored.wait(), self._idle.wait()]
            wait = min((seconds for seconds in waits if seconds is not None), default=None)
            commands = self._link.receive(wait)
            if commands or wait is None or self._link.resting or self._link.closed:
                return commands
            if stored.wait() == 0.0:
                stored.step(self._sequences.slots)
            elif self._idle.wait() == 0.0:
                self._measure()

    def _measure(self) -> None:
        self._llama.use_adapters(())
        self._spinning.before_step(self._llama.threads, self._tuner.granted)
        trial = self._idle.trial
        if trial.wait(time.monotonic()) is not None and not trial.begun:
            # The trial of attention kinds needs an empty cache; other measurements do not.
            self._sequences = self._without_sequences()
        self._idle.step()
        if trial.begun and trial.ended:
            self._end_trial()

    def _end_trial(self) -> None:
        self._idle.trial.interrupt()
        self._attention = self._attention_choice()
        self._use_context()

    def _stop_measuring(self) -> None:
        self._idle.interrupt()
        if self._idle.trial.begun:
            self._end_trial()

    def _handle(self, commands: list[protocol.EngineCommand]) -> None:
        for command in commands:
            match command:
                case (
                    protocol.Submit()
                    | protocol.Locate()
                    | protocol.Export()
                    | protocol.Count()
                    | protocol.Tokenize()
                    | protocol.Detokenize()
                    | protocol.Render()
                ):
                    self._handle_request(command)
                case protocol.Cancel(number):
                    self._cancel(number)
                case protocol.Hurry(number):
                    self._sequences.hurry(number)
                case protocol.SetThreads(threads):
                    self._set_threads(threads)
                case protocol.GetStats(number):
                    self._outbox.add(protocol.Stats(number, self._snapshot()))
                case protocol.Shutdown():
                    for sequence in tuple(self._sequences.all.values()):
                        self._remove(sequence)
                    self._stored_prefixes.save(self._sequences.slots, SAVE_SECONDS)
                    self._link.closed = True
                case protocol.Load():
                    raise protocol.ProtocolError("a second Load")

    def _handle_request(self, command: Request) -> None:
        if is_long(command):
            self._long.give(command)
            return
        self._link.heartbeat(0.0)
        vocab, before = self._llama.vocab, self._llama.vocab.llama_seconds
        prepared = prepared_or_error(self._prompts, command)
        self._llama_seconds += vocab.llama_seconds - before
        self._dispatch_prepared(command, prepared, 0.0)

    def _dispatch_prepared(self, command: Request, prepared: Prepared | EngineError, waited: float) -> None:
        if isinstance(prepared, EngineError):
            self._refuse(command.seq, prepared)
            return
        try:
            if not isinstance(prepared, Prompt):
                self._outbox.add(prepared)
            elif isinstance(command, protocol.Submit):
                self._submit(command, prepared, waited)
            elif isinstance(command, protocol.Locate | protocol.Export):
                self._share(command, prepared.tokens)
        except EngineError as error:
            self._refuse(command.seq, error)
        except Exception as error:  # noqa: BLE001 (boundary: one request's failure must not take the others with it)
            traceback.print_exc(file=sys.stderr)
            self._refuse(command.seq, EngineError(f"the engine failed on this request: {error!r}"))

    def _cancel(self, number: int) -> None:
        if number in self._sequences.all:
            self._finish_early(self._sequences.all[number], "cancelled")
        elif self._stored_prefixes.cancel_export(number):
            return
        elif isinstance(self._long.cancel(number), protocol.Submit):
            self._outbox.add(protocol.Finished(number, "", "cancelled", 0, 0, 0, 0.0, 0.0, 0.0))
            self._counts["cancelled"] += 1

    def _check_adapters(self, lora: Adapters) -> None:
        if not self._llama.has_adapters(lora):
            files = ", ".join(adapter.file for adapter in lora)
            accepted = ", ".join(self._spec.adapters) or "none"
            raise AdapterNotLoaded(f"the adapter {files} is not loaded with this model; accepted: {accepted}")

    def _share(self, command: protocol.Locate | protocol.Export, prompt: Tokens) -> None:
        lora = command.generation.lora
        self._check_adapters(lora)
        match command:
            case protocol.Locate(number):
                cells = self._stored_prefixes.locate(self._sequences.slots, prompt, lora)
                self._outbox.add(protocol.Located(number, cells))
            case protocol.Export(number, _, key, least):
                self._stored_prefixes.export(number, self._sequences, prompt, lora, key, least)

    def _submit(self, command: protocol.Submit, prepared: Prompt, waited: float) -> None:
        request, prompt = command.generation, prepared.tokens
        # The time in which a long text was prepared counts.
        if waited and request.deadline_seconds is not None:
            request = replace(request, deadline_seconds=request.deadline_seconds - waited)
        self._check_adapters(request.lora)
        check_ids(self._llama.vocab, request.stop_tokens)
        chat, biases = bool(request.messages), self._biases(request.logit_bias)
        most = max_answer = clamp_max_tokens(request, len(prompt), self._llama.context_limit)
        thoughts = None
        # Under a grammar for a call, a model whose calls are messages with headers starts with the header.
        is_call = request.grammar is not None and bool(request.tools)
        markers = self._thinking.markers
        if chat and markers is not None and not request.continues and not (is_call and markers.header):
            room = max_answer if request.limits_thoughts else self._llama.context_limit - len(prompt)
            marks = len(self._thinking.closing)
            budget = thinking_room(room, max_answer, self._thinking.budget(request.thinking), marks)
            most = min(room, max_answer + budget + marks + MARK_TOKENS)
            thoughts = Thoughts(
                self._thinking,
                prepared.end,
                budget,
                grammar=request.grammar is not None,
                calls=bool(request.tools and markers.header),
            )
        grammars = self._llama.grammars
        call_marks = self._call_marks if request.tools else {}
        grammar = None if request.grammar is None else grammars.start(request.grammar, call_marks)
        sequence = Sequence(
            command.seq,
            request,
            prompt,
            max_tokens=most,
            stops=self._prompts.template.stops if chat else (),
            grammar=grammar,
            stream=command.stream,
            max_answer=max_answer,
            thoughts=thoughts,
            penalties=self._penalties(request.sampling),
            marks=call_marks,
            call_grammars=self._call_grammars(request, call_marks),
            biases=biases,
            ends=self._ends,
            logprobs=None if request.logprobs is None else AnswerLogprobs(request.logprobs, self._llama.vocab),
            prompt_logprobs=None
            if request.prompt_logprobs is None
            else PromptLogprobs(request.prompt_logprobs, self._llama.vocab, prompt),
            vocabulary=self._llama.vocab.size,
            guard=RepetitionGuard(self._llama.vocab, self._single_bytes, is_json=command.is_json),
        )
        sequence.arrived -= waited
        self._stop_measuring()
        self._sequences.add(sequence)
        self._outbox.add(protocol.Queued((command.seq,)))
        self._counts["prompt_tokens"] += len(prompt)

    def _call_grammars(self, request: Generation, marks: Mapping[int, bytes]) -> CallGrammars | None:
        if request.guided is None:
            return None
        grammars, vocab = self._llama.grammars, self._llama.vocab
        return CallGrammars(
            FAMILIES[request.guided.family],
            [tool.name for tool in request.tools],
            dict(request.guided.grammars),
            lambda grammar: grammars.start(grammar, marks),
            lambda text: continued(vocab, text, special=False).tolist(),
        )

    def _penalties(self, options: SamplingOptions) -> Penalties | None:
        if not options.penalises:
            return None
        return Penalties(options, self._llama.vocab.holding(options.dry_sequence_breakers))

    def _biases(self, logit_bias: tuple[tuple[int | str, float], ...]) -> Biases | None:
        if not logit_bias:
            return None
        vocab = self._llama.vocab
        pairs = [
            (token, bias)
            for key, bias in logit_bias
            for token in ([key] if isinstance(key, int) else vocab.tokenize(key, special=False))
        ]
        for token, _ in pairs:
            if not 0 <= token < vocab.size:
                raise BadRequest(f"logit_bias names the token {token}; accepted: 0 to {vocab.size - 1}")
        return as_tokens([token for token, _ in pairs]), np.array([bias for _, bias in pairs], np.float32)

    # Schedule

    def _schedule(self) -> list[list[_Scheduled]]:
        # One list of sequences and their tokens for each call of llama_decode.
        lora = self._choose_adapters()
        candidates, limit = self._choose_decoding(lora)
        decode = self._sequences.reserve_or_preempt(candidates)
        prefilling = [sequence for sequence in self._sequences.prefilling if sequence.lora == lora]
        held_back = limit == 0 and not any(sequence.interactive for sequence in self._sequences.prefilling)
        drafts = self._propose(decode, bool(self._sequences.prefilling) and not held_back)
        decodes = list(zip(decode, drafts, strict=True))
        decodes.sort(key=_seq)
        if not prefilling:
            return [decodes] if decodes else []
        decoding = len(decode) + sum(map(len, drafts))
        chunks = []
        rows = self._llama.max_outputs - decoding - len(prefilling)  # each prompt may need one at its end
        for sequence, count in self._choose_chunks(prefilling, decoding, limit):
            if not sequence.shares:
                count = min(count, 1 + rows)
                rows -= count - 1
            chunks.append((sequence, sequence.prefill_tokens[sequence.computed : sequence.computed + count]))
        # llama.cpp computes streams together only if they have equally many tokens. So all that decode go into one
        # call, and prompts into others, in groups of chunks of one length. With a pool, everything goes into one
        # call.
        if self._llama.split:
            chunks.sort(key=_seq)
            lengths = [(sequence.seq, len(tokens)) for sequence, tokens in chunks]
            # The micro-batches of several prompts together cannot be padded to a multiple of rows.
            most = self._llama.micro_batch if self._llama.row_multiple == 1 else 1
            groups = group_equal_chunks(lengths, most)
            return [*([decodes] if decodes else []), *([chunks[index] for index in group] for group in groups)]
        return [[*decodes, *chunks]] if decodes or chunks else []

    def _choose_chunks(
        self, prefilling: list[Sequence], decoding: int, limit: int | None
    ) -> list[tuple[Sequence, int]]:
        capacity, running = self._llama.batch.capacity, self._sequences.decoding[:1]
        first = prefilling if limit is None else [sequence for sequence in prefilling if sequence.interactive]
        ahead = sum(s.priority <= running[0].priority + ALIKE for s in first) if running else 0
        needs = [Prefill(s.computed, self._sequences.next_chunk_limit(s)) for s in first]
        shares = chunks_of(needs, decoding=decoding, batch=capacity, ahead=ahead, others_decode=bool(running))
        chunks = [(first[index], count) for index, count in shares]
        # prompts of a batch get at most `limit` tokens
        if limit:
            last = [sequence for sequence in prefilling if not sequence.interactive]
            needs = [Prefill(s.computed, self._sequences.next_chunk_limit(s)) for s in last]
            room = min(limit, capacity - decoding - sum(count for _, count in shares))
            chunks += [
                (last[index], count) for index, count in chunks_of(needs, decoding=0, batch=room, chunk=SHORT_CHUNK)
            ]
        return chunks

    def _choose_adapters(self) -> Adapters:
        if not self._spec.adapters:
            return ()
        urgency: dict[Adapters, float] = {}
        for group in (self._sequences.decoding, self._sequences.prefilling):
            for sequence in group:
                urgency[sequence.lora] = min(urgency.get(sequence.lora, sequence.priority), sequence.priority)
        return self._turns.choose(urgency) if urgency else ()

    def _choose_decoding(self, lora: Adapters) -> tuple[list[Sequence], int | None]:
        # The second value limits the prompt tokens of a batch; None: no limit.
        most = min(self._llama.micro_batch, self._llama.max_outputs)
        running = [sequence for sequence in self._sequences.decoding if sequence.lora == lora][:most]
        interactive = [sequence for sequence in running if sequence.interactive]
        batch = [sequence for sequence in running if not sequence.interactive]
        prompts = [prompt for prompt in self._sequences.prefilling if prompt.lora == lora and not prompt.interactive]
        if not interactive or not (batch or prompts):
            self._batch_turns.reset()
            if len(running) < 2:
                return take_turns(running, 1), None
            width = self._step_costs.next_decode_width([sequence.length for sequence in running])
            return self._join_padded(take_turns(running, width), running), None
        # While interactive sequences decode, those of a batch are left out of most steps.
        width, batch_width, limit = self._batch_turns.choose_widths(
            self._step_costs.current,
            self._step_costs.best_decode_width,
            ([sequence.length for sequence in interactive], [sequence.length for sequence in batch]),
            [Prefill(prompt.computed, self._sequences.next_chunk_limit(prompt)) for prompt in prompts],
            split=self._llama.split,
        )
        selected = take_turns(interactive, width)
        if batch_width:
            selected += take_turns(batch, batch_width)
        return self._join_padded(selected, running), limit

    def _join_padded(self, selected: list[Sequence], running: list[Sequence]) -> list[Sequence]:
        if len(selected) == len(running):
            return selected
        cells = sum(sequence.length for sequence in selected)
        width = self._step_costs.current.padded_width(len(selected), cells)
        padded = self._llama.padded_beside(sorted(sequence.seq for sequence in selected), width)
        return join_padded(selected, running, padded)

    def _propose(self, decode: list[Sequence], prompts_wait: bool) -> list[Tokens]:
        # No drafts while prompts wait: their prefill comes first.
        if self._speculator is None or prompts_wait or not decode:
            return [_NONE] * len(decode)
        slots = self._sequences.slots
        token_budget = slots.available_cells(min(self._llama.max_outputs, self._llama.batch.capacity)) - len(decode)
        self._link.heartbeat(self._step_costs.current.seconds(len(decode), len(decode)))
        before = self._speculator.computing_seconds
        drafts = self._speculator.propose(decode, self._step_costs.current, token_budget)
        self._llama_seconds += self._speculator.computing_seconds - before
        slots.reserve_cells(len(decode) + sum(map(len, drafts)))
        return drafts

    # Decode, sample, emit

    def _compute(self, scheduled: list[_Scheduled]) -> None:
        started = time.monotonic()
        batch, costs, lora = self._llama.batch, self._step_costs.current, scheduled[0][0].lora
        changed = self._llama.use_adapters(lora)
        depths = [sequence.length for sequence, _ in scheduled if sequence.decodes]
        with_logits, parts = self._fill_batch(scheduled)
        cells = sum(cells for _, cells in parts[: len(depths)])  # decoding sequences come first
        size, running, prompts = batch.size, len(depths), len(scheduled) - len(depths)
        self._turns.record(size)
        ratio = self._adapter_costs.ratio(lora)
        self._link.heartbeat(0.0 if costs.is_short(size, cells) else ratio * costs.seconds(size, len(scheduled), cells))
        width = costs.padded_width(running, cells) if size == running else 0
        for sequence, drafts in scheduled[:running]:
            if len(drafts) > self._llama.free_rollback:
                self._llama.checkpoint(sequence.seq)
        seconds, logits = self._decode(width)
        disturbed = self._cpu.disturbed(self._llama.threads)
        self._spinning.after_step(self._cpu, self._llama.threads, self._tuner.granted)
        if lora and not (prompts or disturbed or changed):
            self._adapter_costs.observe(lora, seconds, costs.seconds(size, running, cells))
        if not (prompts or lora or changed):
            padded = width if batch.size == width else 0
            self._step_costs.observe(size, running, seconds, cells, padded, disturbed=disturbed)
        if not prompts:
            self._latest_step = running, size, seconds
        if not (lora or changed or disturbed):
            decoded = sum(count for count, _ in parts[:running])
            self._record_alternatives(size - decoded, decoded, running, cells, seconds)
        for (sequence, _), share in zip(scheduled, divide_step(costs, seconds, parts), strict=True):
            sequence.add_share(share)
        drafted, accepted = self._sample(with_logits, logits)
        self._recompute([sequence for sequence, drafts in scheduled[:running] if len(drafts)])
        self._counts["decode_steps"] += running > 0
        if self._tuner.granted > 1 and not changed:
            self._tune(size, len(scheduled), cells, seconds / ratio, disturbed=disturbed)
        if drafted and not (prompts or disturbed) and self._speculator is not None:
            seconds = time.monotonic() - started + self._speculator.seconds
            self._speculator.record(costs, depths, drafted, accepted, seconds / ratio)

    def _record_alternatives(self, prompt: int, decoded: int, running: int, cells: int, seconds: float) -> None:
        # What the step would have taken with the other layout, and with the other kind of attention.
        sampled = self._counts["steps"] % LEARNED_EVERY == 0
        split, slots = seconds, self._sequences.slots
        streams = self._learned.get((self._llama.flash_attention, True), self._step_costs).current
        if sampled and running:
            ratio = 1.0 if self._layout is None else self._layout.pool_cost_ratio
            slots.note_read(LEARNED_EVERY * streams.per_cell * pool_passes(running) * ratio)
        if self._layout is not None and not prompt and sampled:
            reads = AttentionReads(running, cells, slots.pooled_cells)
            padded = self._llama.batch.size - decoded
            saved = self._layout.record(reads, seconds, streams, LEARNED_EVERY, padded=padded)
            split = seconds if self._llama.split else seconds - saved
        if self._attention is not None and (prompt or sampled):
            count = 1 if prompt else LEARNED_EVERY  # steps with prompts are rare, and very different from each other
            self._attention.record(prompt, decoded, cells, seconds, count, split=split)

    def _fill_batch(self, scheduled: list[_Scheduled]) -> tuple[list[_Outputs], list[tuple[int, int]]]:
        batch = self._llama.batch
        batch.clear()
        with_logits: list[_Outputs] = []
        parts: list[tuple[int, int]] = []  # tokens computed for each sequence, and the cells they attend to
        for sequence, tokens in scheduled:
            if sequence.decodes:
                depth = cells = sequence.length
                batch.add_one(sequence.seq, depth - 1, sequence.output[-1])
                if len(tokens):
                    batch.add(sequence.seq, depth, tokens, len(tokens))
                    cells += attended_cells(depth, len(tokens))
                parts.append((1 + len(tokens), cells))
                with_logits.append(_Outputs(sequence, tokens))
            else:
                parts.append((len(tokens), attended_cells(sequence.computed, len(tokens))))
                with_logits += self._add_chunk(sequence, tokens)
        return with_logits, parts

    def _tune(self, tokens: int, sequences: int, cells: int, seconds: float, *, disturbed: bool) -> None:
        tuner = self._tuner
        expected = self._step_costs.for_threads(tuner.granted).seconds(tokens, sequences, cells)
        tuner.observe(seconds, expected, time.monotonic(), disturbed=disturbed)
        if tuner.threads != self._llama.threads:
            self._use_threads(tuner.threads)

    def _add_chunk(self, sequence: Sequence, chunk: Tokens) -> list[_Outputs]:
        position = sequence.computed
        # A sequence that was preempted already has its next token, which is decoded after its prefill.
        samples = position + len(chunk) == len(sequence.prefill_tokens) and not sequence.output
        # Logprobs of the prompt need all of its logits.
        prompt_rows = 0 if sequence.shares else len(chunk) - samples
        self._llama.batch.add(sequence.seq, position, chunk, prompt_rows + samples)
        self._sequences.computed(sequence, chunk)
        if not prompt_rows + samples:
            return []
        return [_Outputs(sequence, _NONE, prompt_rows, position, samples)]

    def _decode(self, width: int) -> tuple[float, Logits]:
        self._cpu.start()
        logits = self._llama.decode(width)
        seconds = self._cpu.stop()
        self._llama_seconds += seconds
        self._counts["steps"] += 1
        return seconds, logits

    def _sample(self, with_logits: list[_Outputs], logits: Logits) -> tuple[int, int]:
        best = logits.argmax(axis=1).tolist() if len(logits) else []
        states = self._llama.states() if len(logits) and self._speculator and self._speculator.wants_states else None
        row = drafted = accepted = refused = 0
        for sequence, drafts, prompt_rows, position, samples in with_logits:
            if sequence.prompt_logprobs is not None and prompt_rows:
                sequence.prompt_logprobs.take(position, logits[row : row + prompt_rows])
                row += prompt_rows
            if not samples:
                continue
            proposed = self._speculator.drafted(sequence) if len(drafts) and self._speculator is not None else 0
            end = row + len(drafts) + 1
            before = len(sequence.output)
            accepted_tokens = self._accept_tokens(sequence, drafts, proposed, logits[row:end], best[row:end])
            accepted += accepted_tokens
            refused += accepted_tokens < proposed and sequence.finish is None
            if states is not None and self._speculator is not None and sequence.number in self._sequences.all:
                self._speculator.follow(sequence, states[row : row + len(sequence.output) - before])
            drafted += proposed
            row = end
        self._counts["drafted"] += drafted
        self._counts["accepted"] += accepted
        self._counts["refused_drafts"] += refused
        return drafted, accepted

    def _accept_tokens(self, sequence: Sequence, drafts: Tokens, proposed: int, logits: Logits, best: list[int]) -> int:
        # The first `proposed` drafts are the speculator's; the others only pad the batch.
        first, before = not sequence.output, sequence.length
        count = cached = 0
        error: EngineError | None = None
        piece = sequence.piece_of(self._llama.vocab.piece)
        try:
            for token in (
                verify_drafts(drafts, lambda row: sequence.sample(logits[row], best[row], piece))
                if len(drafts)
                else (sequence.sample(logits[0], best[0], piece),)
            ):
                self._append(sequence, token)
                count += 1
                # An end token is not part of the text.
                cached += count <= len(drafts) and token == int(drafts[count - 1]) and sequence.length >= before + count
                if sequence.finish is not None:
                    break
        except NoTokenAllowed:
            error = _no_token_allowed(sequence)
        except LogitsAreNaN:
            error = BrokenModel("the model's logits are NaN: its weights or its KV types are unfit")
        self._take_back(sequence.seq, len(drafts) - cached, before + cached)
        accepted = min(proposed, max(0, count - 1))
        sequence.drafted_tokens += proposed
        sequence.accepted_tokens += accepted
        if error is not None:
            self._fail(sequence, error)
        elif sequence.finish is not None:
            self._finish(sequence)
        elif self._speculator is not None and not first:
            self._speculator.observe(sequence, proposed, accepted)
        return accepted

    def _take_back(self, seq: int, rejected: int, length: int) -> None:
        llama = self._llama
        restores = rejected > llama.free_rollback
        if llama.has_checkpoint(seq):
            llama.release_checkpoint(seq, restores=restores)
        if rejected and not restores:
            llama.truncate(seq, length)

    def _recompute(self, sequences: list[Sequence]) -> None:
        # Those that were taken back to a checkpoint also lost the tokens that were accepted.
        batch, held = self._llama.batch, self._llama.held
        live = [sequence for sequence in sequences if sequence.number in self._sequences.all]
        lost = [(sequence, held(sequence.seq)) for sequence in live if held(sequence.seq) < sequence.length - 1]
        if not lost:
            return
        batch.clear()
        for sequence, start in lost:
            tokens = as_tokens(sequence.output)[start - len(sequence.prompt) : -1]
            batch.add(sequence.seq, start, tokens, 0)
        self._decode(0)

    def _append(self, sequence: Sequence, token: int) -> None:
        before, vocab = len(sequence.output), self._llama.vocab
        end, piece = sequence.is_end(token, vocab.end), sequence.piece_of(vocab.piece)
        text = sequence.append(token, b"" if end else piece(token), end)
        text += sequence.append_ending(vocab.end, piece)
        self._counts["output_tokens"] += len(sequence.output) - before
        self._emit(sequence, text)
        if sequence.finish is None and len(sequence.output) == 1:
            self._sequences.begin_decoding(sequence)

    def _finish_early(self, sequence: Sequence, finish: Finish) -> None:
        self._emit(sequence, sequence.finish_early(finish))
        self._finish(sequence)

    def _emit(self, sequence: Sequence, text: str) -> None:
        if not sequence.stream:
            return
        if sequence.thoughts is not None and (thought := sequence.thoughts.unsent()):
            self._outbox.add_thought(sequence.number, thought)
        if text:
            tokens = sequence.logprobs.unsent() if sequence.logprobs is not None else ()
            self._outbox.add_text(sequence.number, text, tokens)

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
        self._sequences.remove(sequence)
        self._counts["grammar_rejections"] += sequence.rejections
        sequence.close()
        if not self._sequences.all:
            self._idle.note_work()
            self._stored_prefixes.note_work()

    def _forget_drafts(self, sequence: Sequence) -> None:
        if self._speculator is not None:
            self._speculator.forget(sequence)

    def _change_context(self) -> None:
        layout, attention, llama = self._layout, self._attention, self._llama
        losses = [choice.regret for choice in (attention, layout) if choice is not None]
        if not any(losses):
            return
        # The prefixes of finished prompts are lost, except for those that can be restored from disk.
        lost = min(self._sequences.slots.tree.cells, llama.context_limit)
        price = llama.open_seconds + lost * self._step_costs.current.prefill
        if attention is not None and attention.change_is_due(price):
            self._link.heartbeat(2 * llama.open_seconds)
            self._change_attention(attention)
        elif layout is not None and layout.change_is_due(price):
            self._link.heartbeat(2 * llama.open_seconds)
            self._change_layout(layout)

    def _change_attention(self, attention: AttentionChoice) -> None:
        llama, before, split = self._llama, self._llama.flash_attention, self._llama.split
        attention.change()
        try:
            llama.set_attention(self._spec, attention.attention)
        except CannotLoad as error:
            print(f"the kind of attention stays as it was: {error}", file=sys.stderr, flush=True)
            self._attention = None
            llama.set_attention(self._spec, before)
            if llama.split != split:
                llama.set_layout(self._spec, split=split)
        else:
            self._counts["attention_changes"] += 1
            note_attention(llama, self._spec)
        self._use_context()

    def _change_layout(self, layout: CacheLayout) -> None:
        llama, is_changed = self._llama, True
        layout.change()
        try:
            llama.set_layout(self._spec, split=layout.split)
        except CannotLoad as error:
            print(f"the layout of the KV cache stays as it was: {error}", file=sys.stderr, flush=True)
            is_changed = False
            llama.set_layout(self._spec, split=not llama.split)
        self._counts["layout_changes"] += 1
        self._use_context()
        self._layout = layout if is_changed else None

    def _use_context(self) -> None:
        # The context is a new one, so the cache is empty.
        self._step_costs = self._costs_of_context()
        self._layout = self._layout_of_context()
        if self._attention is not None:
            self._attention.forget_regret()
        self._sequences = self._without_sequences()

    def _set_threads(self, threads: int) -> None:
        self._tuner.grant(threads)
        self._use_threads(self._tuner.threads)

    def _use_threads(self, threads: int) -> None:
        self._llama.set_threads(threads)
        self._step_costs.use_threads(threads)
        if self._speculator is not None:
            self._speculator.set_threads(threads)

    def _snapshot(self) -> EngineStats:
        return EngineStats(
            **self._counts,
            stored_prefixes=self._stored_prefixes.stored,
            restored_prefixes=self._stored_prefixes.restored,
            restored_tokens=self._stored_prefixes.restored_tokens,
            saved_seconds=self._speculator.controller.saved_seconds if self._speculator else 0.0,
            speculation=self._speculator.status if self._speculator else NOT_SET_UP,
            llama_seconds=self._llama_seconds,
            own_seconds=self._own_seconds,
            running=len(self._sequences.decoding),
            prefilling=len(self._sequences.prefilling),
            queued=len(self._sequences.queue) + self._long.pending,
            retained=self._sequences.slots.retained,
            used_cells=self._sequences.slots.used_cells,
            cells=self._llama.cells,
            threads=self._llama.threads,
            calibrated=self._idle.wait() is None,
            split_cache=self._llama.split,
            keeps_scores=self._llama.flash_attention == "off",
            cells_by_role=self._sequences.cells_by_role(),
            finished_cells=self._sequences.slots.finished_cells,
            step_times=self._step_times(),
        )

    def _step_times(self) -> StepTimes:
        costs, (width, tokens, seconds) = self._step_costs.current, self._latest_step
        return StepTimes(
            decode=tuple(zip(costs.decode.sizes, costs.decode.seconds, strict=True)),
            verify=tuple(zip(costs.verify.sizes, costs.verify.seconds, strict=True)),
            prompt_token=costs.prefill,
            cell=costs.per_cell,
            pads=costs.pads,
            measured=self._step_costs.measured,
            width=width,
            tokens=tokens,
            seconds=seconds,
        )


def clamp_max_tokens(request: Generation, prompt_tokens: int, limit: int) -> int:
    """Return how many tokens the answer may have, after a prompt of `prompt_tokens`, which count towards `limit` too.

    Raises PromptTooLong if fewer are left than the request accepts, see `Generation.fit`.
    """
    room = limit - prompt_tokens
    requested = request.max_tokens or max(1, room)
    least = requested if request.max_tokens else 1
    if request.fit is not None:
        least = min(request.fit, request.max_tokens or request.fit)
    if room < least:
        raise PromptTooLong(prompt_tokens, limit, requested)
    return min(requested, room)


def thinking_room(room: int, answer: int, budget: int | None, closing: int) -> int:
    """Return how many tokens thoughts may have, of `room` for thoughts and an answer of at most `answer` tokens.

    They leave room for `closing` tokens, which end a thought, and for the answer or at least a quarter of the room.
    """
    most = max(0, room - closing - min(answer, max(1, room // 4)))
    return most if budget is None else min(most, budget)


def _no_token_allowed(sequence: Sequence) -> BadRequest:
    if sequence.grammar is None:
        return BadRequest("logit_bias rules every token of the model's vocabulary out")
    return BadGrammar("no token of the model's vocabulary continues the grammar")


def _seq(share: _Scheduled) -> int:
    return share[0].seq
