"""The process that judges a chat template: see `template_check`."""

import json
import resource
import sys
from dataclasses import asdict

from orchestrator.registry.chat_template import takes_tools, why_words_are_lost
from orchestrator.registry.template_check import MOST_BYTES, MOST_SECONDS, TemplateVerdict


def judged(source: str) -> TemplateVerdict:
    """Judge a template in this process, without limits of its own."""
    return TemplateVerdict(why_words_are_lost(source), takes_tools(source))


def main() -> None:
    """Judge the template on stdin, within the limits, and write the verdict as JSON on stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    verdict = judged(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    sys.stdout.write(json.dumps(asdict(verdict)))
