"""Look at runs of many steps, ended and live, and at steps that write at once, with the web page in Chromium."""

import asyncio
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from playwright.async_api import Page, async_playwright

from benchmarks.daemon.bodies import layered, many_lines, short
from benchmarks.daemon.figures import PartResult, percentile
from benchmarks.daemon.process import BenchmarkFailed, running_daemon, submit, wait_ended
from orchestrator.bench.goals import at_most
from orchestrator.run.journal.journal import Journal
from orchestrator.task.analysis import analyze
from orchestrator.task.events import (
    AttemptGenerated,
    AttemptStarted,
    AttemptSucceeded,
    Event,
    PlanFinished,
    RunAccepted,
    RunBegun,
    RunFinished,
    StepsPlanned,
    Usage,
)
from orchestrator.task.prediction import predict_plan
from orchestrator.task.taskir.parse import task_from

FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
RUN: Final = "long"
WIDTH: Final = 100
STREAMS: Final = 30
LOOKS: Final = 5
KEYS: Final = 120
ROWS: Final = 100  # that the page asks for
FIRST_VIEW_SECONDS: Final = 1.0
FRAME_MS: Final = 100.0
# Notes how long each frame took until the next, in milliseconds, from `window.frames = []` on.
FRAMES: Final = """
window.frames = [];
let last = performance.now();
const note = (now) => { window.frames.push(now - last); last = now; requestAnimationFrame(note); };
requestAnimationFrame(note);
"""


async def measure(folder: Path, steps: int) -> PartResult:
    """Look at a run of many steps that has ended, at one that runs, and at STREAMS steps while they write."""
    program = shutil.which("chromium")
    if program is None:
        raise BenchmarkFailed("there is no chromium; on Debian: apt-get install chromium")
    settings = {"server_tcp": f"127.0.0.1:{_free_port()}", "memory_use": "off"}
    await _write(folder / "home", steps)
    figures: dict[str, Any] = {"steps": steps, "streams": STREAMS}
    with running_daemon(folder / "home", **settings) as daemon:  # which has read nothing of the run yet
        async with daemon.client() as client, async_playwright() as playwright:
            await wait_ended(client, await submit(client, short()))  # the first event builds what decodes all
            figures["picture_seconds"] = [await _seconds(client, RUN) for _ in range(LOOKS)]
            figures["picture_mib"] = round(len((await client.get(f"/v1/runs/{RUN}/picture")).content) / (1 << 20), 2)
            browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS))
            page = await browser.new_page(viewport={"width": 1440, "height": 900})
            await page.add_init_script(FRAMES)
            await page.goto((await client.post("/v1/session/links")).json()["url"])
            await page.wait_for_selector("table.runs")
            figures["long_run"] = [await _long_run(page, RUN) for _ in range(LOOKS)]
            for name, body, least in (
                ("live_long_run", layered(steps, WIDTH), 1),
                ("live_run", many_lines(STREAMS), STREAMS // 2),
            ):
                live = await submit(client, body)
                figures[name] = await _live_run(page, live, least)
                await client.post(f"/v1/runs/{live}/cancel")
                await wait_ended(client, live)
            await browser.close()
    first = figures["picture_seconds"][0]
    opening, in_run = (median(look[name] for look in figures["long_run"]) for name in ("opening_ms", "longest_ms"))
    longest = {name: figures[name]["longest_ms"] for name in ("live_long_run", "live_run")}
    return PartResult(
        figures,
        [
            at_most(f"server seconds until a run of {steps} steps is first shown", first, FIRST_VIEW_SECONDS),
            at_most(f"longest frame while a run of {steps} steps opens, ms", opening, FRAME_MS),
            at_most(f"longest frame in a run of {steps} steps, ms", in_run, FRAME_MS),
            at_most(f"longest frame while {steps} steps run, ms", longest["live_long_run"], FRAME_MS),
            at_most(f"longest frame while {STREAMS} steps write, ms", longest["live_run"], FRAME_MS),
        ],
    )


async def _write(home: Path, steps: int) -> None:
    """Write a run of layers of WIDTH steps that has ended. Each step reads the outputs of two in the layer before."""
    plan = task_from(layered(steps, WIDTH)["task"]).plan.steps
    usage = Usage(prompt_tokens=100, cached_tokens=50, output_tokens=20, prefill_seconds=0.1, decode_seconds=0.3)
    with Journal.open(home) as journal:
        digest = journal.put(b"[1, 2]")
        events: list[Event] = [
            RunAccepted(at=1.0, run=RUN, mode="as-planned", request="a measurement"),
            RunBegun(at=1.0),
            StepsPlanned(at=1.0, steps=plan, predicted=predict_plan(analyze(plan, files=()), {})),
            PlanFinished(at=1.0, origin="planned"),
        ]
        for number, step in enumerate(plan):
            at, digests = 2.0 + number / WIDTH, {step.outputs[0]: digest}
            events += [
                AttemptStarted(
                    at=at, step=step.id, number=1, role="worker", persona=None, model="tiny-large", reason="its actor"
                ),
                AttemptGenerated(at=at + 0.5, step=step.id, number=1, usage=usage),
                AttemptSucceeded(at=at + 0.6, step=step.id, number=1, outputs=digests),
            ]
        await journal.append(RUN, [*events, RunFinished(at=at + 1.0, status="done")])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _seconds(client: Any, run: str) -> float:
    begun = time.perf_counter()
    (await client.get(f"/v1/runs/{run}/picture", params={"first": 0, "count": ROWS})).raise_for_status()  # as the page
    return round(time.perf_counter() - begun, 4)


async def _long_run(page: Page, run: str) -> dict[str, float]:
    """Look at a run with the keyboard and the wheel, in a page that has just been loaded."""
    address = page.url.partition("#")[0]
    await page.goto("about:blank")
    await page.goto(address)
    await page.wait_for_selector("table.runs")
    opening = await _open(page, run)
    await page.focus("[role=listbox]")
    await page.evaluate("window.frames = []")
    for key in ("ArrowDown", "PageDown", "End", "PageUp", "Home"):
        for _ in range(KEYS // 5):
            await page.keyboard.press(key)
    for _ in range(KEYS // 5):
        await page.mouse.wheel(0, 4000)
        await asyncio.sleep(0.02)
    return {**_spread(await page.evaluate("window.frames")), "opening_ms": opening}


async def _live_run(page: Page, run: str, least: int) -> dict[str, float]:
    """Look at a run for five seconds, from the moment at which `least` of its steps run."""
    await _open(page, run)
    await page.wait_for_function(f"document.querySelectorAll('.row.running').length >= {least}")
    await page.click("[role=option]")
    await page.evaluate("window.frames = []")
    await asyncio.sleep(5.0)
    return _spread(await page.evaluate("window.frames"))


async def _open(page: Page, run: str) -> float:
    """Open a run, and return the longest frame until its steps are there, in milliseconds."""
    await page.evaluate("window.frames = []")
    await page.evaluate("hash => { location.hash = hash }", f"#/runs/{run}")
    await page.wait_for_selector("[role=option]")
    return _spread(await page.evaluate("window.frames"))["longest_ms"]


def _spread(frames: Sequence[float]) -> dict[str, float]:
    return {
        "frames": len(frames),
        "p50_ms": round(percentile(frames, 50), 1),
        "p99_ms": round(percentile(frames, 99), 1),
        "longest_ms": round(max(frames), 1),
    }
