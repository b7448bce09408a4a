"""Code in the real sandbox, over the real channel. The code is the test's: it stands for what a model writes."""

from pathlib import Path
from typing import cast

import pytest

from orchestrator.engine.client.engine import Completion
from orchestrator.engine.contract import Generation, Message
from orchestrator.engine.errors import EngineDied, EngineError
from orchestrator.run.sandbox.sandbox import Sandbox
from orchestrator.run.sandbox.session import Session
from orchestrator.run.steps.attempt import AttemptError
from orchestrator.run.steps.repl.host import Host
from orchestrator.run.steps.repl.outputs import SHOWN, Outputs
from orchestrator.run.steps.repl.session import Interpreter
from orchestrator.run.steps.repl.subcalls import ReplBudget
from orchestrator.task.events import FailureKind
from tests.orchestrator.run.steps.repl.repl_fixture import INPUTS, ReplFixture, echo, running, shown


async def test_variables_last_from_turn_to_turn_and_the_last_line_is_shown(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, _):
        assert (await program.run("import math\nx = 20\nprint('set')")).shown == "set"
        assert (await program.run("x += 1\nmath.floor(x * 2.01)")).shown == "42"
        assert (await program.run("None")).shown == ""


async def test_errors_are_shown_with_the_line_and_the_interpreter_goes_on(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, _):
        end = await program.run("y = 1\ndef f(z):\n    return 1 / z\nf(0)")
        assert end.error is not None
        assert end.error.splitlines()[0] == "Traceback (most recent call last):"
        assert '  File "<turn 1>", line 3, in f' in end.error
        assert "    return 1 / z" in end.error
        assert end.error.endswith("ZeroDivisionError: division by zero")
        assert "interpreter.py" not in end.error
        syntax = await program.run("if:")
        assert syntax.error is not None
        assert syntax.error.endswith("SyntaxError: invalid syntax")
        assert ((await program.run("import sys\nsys.exit(3)")).error or "").endswith("SystemExit: 3")
        assert (await program.run("y")).shown == "1"


async def test_inputs_are_peeked_and_grepped(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, _):
        end = await program.run(
            "print(sorted(inputs), len(inputs['long.txt']))\n"
            "print(peek('ship.txt', 6, 6))\nprint(grep('^w.*t$'))\nprint(len(grep('line', 'long.txt', limit=7)))\n"
            "grep('name', limit=1)[0][2]"
        )
        assert end.error is None
        assert end.shown == shown(
            "['long.txt', 'ship.txt'] 1500000", "Koldin", "[('ship.txt', 2, 'weight: 12 t')]", "7", "'name: Koldin'"
        )


async def test_long_output_is_cut_kept_whole_and_peeked(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, _):
        end = await program.run("for n in range(40000): print('number', n)")
        whole = "\n".join(f"number {n}" for n in range(40000))
        assert end.error is None
        assert len(end.shown) < SHOWN + 200
        assert end.shown.startswith("number 0\n")
        assert end.shown.endswith("number 39999")
        assert "peek('out1', start, length)" in end.shown
        assert (tmp_path / "out1.txt").read_text() == whole
        again = await program.run("peek('out1', 7, 8), len(peek('out1', 0, 10**9)), grep('39998', 'out1')")
        assert again.shown == f"('0\\nnumber', {len(whole)}, [('out1', 39999, 'number 39998')])"
        assert "no text 'out9'; outputs so far: out1, out2" in ((await program.run("peek('out9')")).error or "")


async def test_final_ends_the_turn_with_a_value(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, _):
        refused = await program.run("final({1, 2})")
        assert (refused.final, "not JSON serializable" in (refused.error or "")) == (False, True)
        end = await program.run("try:\n    final({'a': [1]})\nexcept Exception:\n    pass\nprint('never')")
        assert (end.final, end.value, end.shown) == (True, {"a": [1]}, "")


async def test_outputs_are_written_through_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, fixture):
        end = await program.run("artifacts['o.txt'] = 'made'\nprint(artifacts['o.txt'], len(artifacts))")
        assert end.shown == "made 1"
        assert fixture.workspace.written == {"o.txt": "made"}
        refused = await program.run("artifacts['ship.txt'] = 'x'")
        assert "'ship.txt' is no output of this step; accepted: o.txt, p.txt" in (refused.error or "")
        assert "Expected `str`, got `int`" in ((await program.run("artifacts['o.txt'] = 3")).error or "")


async def test_tools_are_those_that_were_granted(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, fixture):
        assert (await program.run("tool('list_files', pattern='s*')")).shown == "['ship.txt']"
        assert "has no tool 'shell'; accepted: read_file, list_files" in (await program.run("tool('shell')")).shown
        caught = await program.run("try:\n    tool('read_file')\nexcept HostError as e:\n    print('told:', e)")
        assert caught.shown.startswith("told: tool: read_file: /: 'name' is a required property")
        assert [(call.tool, call.outcome) for call in fixture.calls] == [
            ("list_files", "done"),
            ("shell", "refused"),
            ("read_file", "refused"),
        ]


async def test_what_cannot_be_sent_costs_a_turn_and_not_the_program(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, _):
        for value in ("float('nan')", "'\\ud800'"):
            assert "Error" in ((turn := await program.run(f"kept = 7; final({value})")).error or turn.shown), value
        assert (await program.run("print('\\ud800', kept)")).shown == "? 7"
        assert "TypeError" in (await program.run("tool('read_file', name=b'x')")).shown


async def test_a_call_that_is_none_leaves_the_clock_of_its_turn(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path, budget=ReplBudget(turn_seconds=1.0)) as (program, _):
        code = "try:\n    tool('read_file', name=b'x')\nexcept TypeError:\n    pass\nwhile True:\n    pass"
        assert ((await program.run(code)).error or "").endswith("Stopped: the turn took longer than it may")


async def test_a_batch_is_one_call_of_the_pool_for_each_model(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, fixture):
        end = await program.run(
            "print(llm_call('Hello', persona='Be terse.'))\n"
            "print(llm_batch([f'n{i}' for i in range(4)] + [{'prompt': 'c', 'role': 'coder', 'inputs': {'a': 'b'}}]))"
        )
        assert end.error is None
        assert end.shown == shown(
            "<Task: Hello>", ["<Task: n0>", "<Task: n1>", "<Task: n2>", "<Task: n3>", "<[a]\nb\n\nTask: c>"]
        )
        assert [(model, len(requests)) for model, requests in fixture.batches] == [("own", 1), ("own", 4), ("coder", 1)]
        assert fixture.batches[0][1][0].messages[0] == Message("system", "I am own.\nBe terse.")
        assert (fixture.spending.calls, fixture.spending.usage.output_tokens) == (6, 30)
        assert [(call.tool, call.outcome) for call in fixture.calls] == [("llm_call", "done"), ("llm_batch", "done")]


async def test_calls_that_fail_are_distinguished_from_those_that_do_not(sandbox: Sandbox, tmp_path: Path) -> None:
    def reply(request: Generation) -> Completion | EngineError:
        text = request.messages[-1][1]
        if "die" in text:
            return EngineDied("the engine process exited with code 1")
        return Completion("cut", "length", echo(request).usage) if "long" in text else echo(request)

    async with running(sandbox, tmp_path, reply=reply) as (program, fixture):
        end = await program.run(
            "made = llm_batch(['fine', 'die', 'long', {'prompt': 'x', 'role': 'plumber'}])\n"
            "print([isinstance(one, HostError) for one in made])\nprint(*made[1:], sep='; ')\nllm_call('die')"
        )
        assert end.shown.startswith(
            "[False, True, True, True]\nthe engine process exited with code 1; the answer did not"
        )
        assert "there is no role 'plumber'; accepted: worker, coder" in end.shown
        assert (end.error or "").endswith("HostError: llm_call: the engine process exited with code 1")
        assert [(call.outcome, call.message[:6]) for call in fixture.calls] == [
            ("failed", "3 of 4"),
            ("failed", "1 of 1"),
        ]


async def test_the_budget_holds_whatever_the_code_does(sandbox: Sandbox, tmp_path: Path) -> None:
    budget = ReplBudget(calls=3, tokens=1000)
    async with running(sandbox, tmp_path, budget=budget) as (program, fixture):
        assert "4 calls are too many: 3 of 3 are left" in ((await program.run("llm_batch(['x'] * 4)")).error or "")
        await program.run("llm_batch(['x'] * 2)\nllm_batch([])")
        loop = "for _ in range(50):\n    try:\n        llm_batch([])\n    except HostError:\n        pass"
        await program.run(loop)
        assert [call.outcome for call in fixture.calls] == ["refused", "done", "done"], (
            "what is refused again is no news"
        )
        assert "1 calls are too many: 0 of 3" in ((await program.run("tool('list_files')")).error or "")
        assert len(fixture.batches) == 1
    async with running(sandbox, tmp_path, budget=ReplBudget(tokens=25)) as (program, fixture):
        await program.run("llm_batch(['x', 'y'])")
        assert "all 25 tokens of model calls are used" in ((await program.run("llm_call('x')")).error or "")
        assert [request.max_tokens for request in fixture.batches[0][1]] == [12, 12]


async def test_a_turn_that_takes_or_prints_too_much_ends_and_the_next_one_goes_on(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    budget = ReplBudget(turn_seconds=1.0, turn_output=1000)
    async with running(sandbox, tmp_path, budget=budget) as (program, _):
        stuck = await program.run("n = 0\nwhile True:\n    try:\n        n += 1\n    except Exception:\n        pass")
        assert (stuck.error or "").endswith("Stopped: the turn took longer than it may")
        wordy = await program.run("while True: print('x' * 100)")
        assert (wordy.error or "").endswith("Stopped: the turn printed more than it may")
        assert await shown_in_time(program, "n > 0") == "True"


async def test_an_end_of_input_is_an_error_like_any_other(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, _):
        asked = await program.run("x = 7\ninput()")
        assert (asked.error or "").endswith("EOFError: EOF when reading a line")
        raised = await program.run("raise EOFError('no more')")
        assert (raised.error or "").endswith("EOFError: no more")
        assert (await program.run("x")).shown == "7"


@pytest.mark.parametrize("before", [pytest.param("", marks=pytest.mark.slow), "tool('list_files')\n"])
async def test_a_turn_that_swallows_the_end_of_its_time_is_stopped_again(
    sandbox: Sandbox, tmp_path: Path, before: str
) -> None:
    async with running(sandbox, tmp_path, budget=ReplBudget(seconds=60, turn_seconds=0.5)) as (program, _):
        code = "import time\ntry:\n    time.sleep(60)\nexcept:\n    print('mine')\nwhile True: pass"
        stuck = await program.run(before + code)
        assert stuck.shown.startswith("mine\n")
        assert (stuck.error or "").endswith("Stopped: the turn took longer than it may")
        assert await shown_in_time(program, "1 + 1") == "2"


async def shown_in_time(program: Interpreter, code: str) -> str:
    """Return what short code shows, which a busy machine may not have carried out within the short time of a turn."""
    for _ in range(10):
        turn = await program.run(code)
        if turn.error is None:
            return turn.shown
        assert turn.error.endswith("Stopped: the turn took longer than it may")
    raise AssertionError("no turn was in time")


class Chatty:
    """A session whose program prints one character a message, and then says that its turn is over."""

    def __init__(self, messages: int) -> None:
        self.left = messages

    async def send(self, message: bytes) -> bool:
        return True

    async def receive(self) -> bytes:
        self.left -= 1
        return b'{"type":"printed","text":"x"}' if self.left >= 0 else DONE


DONE = b'{"type":"done","error":null,"final":false,"value":null}'


async def test_what_is_printed_in_many_pieces_is_put_together_once(tmp_path: Path) -> None:
    fixture = ReplFixture(tmp_path, ReplBudget(), echo, ())
    host = Host(fixture.toolbox, fixture.outputs, fixture.subcalls, fixture.spending, fixture.calls.append)

    outputs = Outputs(tmp_path)
    program = Interpreter(cast(Session, Chatty(40_000)), host, outputs, ReplBudget())
    await program.run("")
    assert outputs.read(outputs.last) == "x" * 40_000


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        ("import os\nprint('last words', flush=True)\nos._exit(7)", FailureKind.CODE, "exit code 7"),
        ("import os\nos.write(3, b'\\x00\\x00\\x00\\x02{}')\ninput()", FailureKind.CODE, "broke its interpreter"),
        ("import os\nos.write(3, b'\\xff\\xff\\xff\\xff')\ninput()", FailureKind.CODE, "broke its interpreter"),
        (
            "import os\nos.write(3, b'\\x00\\x01\\x00\\x00' + b'[' * 65536)\ninput()",
            FailureKind.CODE,
            "broke its interp",
        ),
        ("block = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): block[i] = 1", None, ""),
    ],
)
async def test_code_that_breaks_its_interpreter_fails_the_attempt_and_nothing_else(
    sandbox: Sandbox, tmp_path: Path, code: str, kind: FailureKind | None, told: str
) -> None:
    async with running(sandbox, tmp_path) as (program, _):
        if kind is None:
            try:
                end = await program.run(code)
            except AttemptError as error:
                assert error.failure.kind is FailureKind.RESOURCE  # noqa: PT017 - either way is a contained one
            else:
                assert "MemoryError" in (end.error or "")
            return
        with pytest.raises(AttemptError) as caught:
            await program.run(code)
    assert (caught.value.failure.kind, told in caught.value.failure.message) == (kind, True)


async def test_whatever_the_code_sends_is_checked(sandbox: Sandbox, tmp_path: Path) -> None:
    async with running(sandbox, tmp_path) as (program, fixture):
        ask = "import gc\nchannel = [o for o in gc.get_objects() if type(o).__name__ == 'Channel'][0]\n"
        for question, why in [
            ("'format_disk'", "there is no call 'format_disk'; accepted: llm_call, llm_batch"),
            ("'llm_call', prompt=3", "llm_call: Expected `str`, got `int`"),
            ("'llm_batch', calls=[{'prompt': 'x', 'sudo': True}]", "unknown field `sudo`"),
            ("'write', name='../../x', text='y'", "no output of this step"),
            ("'output', name='../../../etc/passwd', start=0, length=9", "there is no text"),
        ]:
            assert why in ((await program.run(f"{ask}channel.ask({question})")).error or "")
        assert fixture.batches == []


async def test_inputs_are_whole_in_the_interpreter(sandbox: Sandbox, tmp_path: Path) -> None:
    odd = {"odd": 'quote " back \\ \x00 \u2028 🙂\r\n', "empty": ""}
    async with running(sandbox, tmp_path) as (program, _):
        await program.feed(odd)
        assert (await program.run(f"inputs['odd'] == {odd['odd']!r}, inputs['empty']")).shown == "(True, '')"
        assert (await program.run("len(inputs['long.txt'])")).shown == str(len(INPUTS["long.txt"]))
