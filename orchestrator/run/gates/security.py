"""The gate security: find dangerous calls in Python, and secrets in any text."""

import re
from collections.abc import Mapping, Sequence

from orchestrator.run.gates import ruff
from orchestrator.run.gates.contract import Artifact, Gate, GateContext
from orchestrator.run.gates.findings import Finding, format_findings
from orchestrator.run.gates.jobs import files_of
from orchestrator.task.events import FailureKind, GateResult

RULES = ("S",)
# `assert`, of which tests consist, and random numbers that are not meant for cryptography.
IGNORED = ("S101", "S311")

# The patterns are bounded, so that no text makes them slow.
SECRETS: Mapping[str, re.Pattern[bytes]] = {
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]{1,20} ){0,3}PRIVATE KEY-----"),
    "an AWS access key": re.compile(rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a GitHub token": re.compile(rb"\b(?:gh[pousr]_[0-9A-Za-z]{36}|github_pat_[0-9A-Za-z_]{22,255})\b"),
    "a Slack token": re.compile(rb"\bxox[abprs]-[0-9A-Za-z-]{10,255}\b"),
    "a Google API key": re.compile(rb"\bAIza[0-9A-Za-z_-]{35}\b"),
    "an API key": re.compile(rb"\bsk-[0-9A-Za-z_-]{20,255}\b"),
    "a JSON web token": re.compile(rb"\beyJ[0-9A-Za-z_-]{10,2000}\.eyJ[0-9A-Za-z_-]{10,2000}\.[0-9A-Za-z_-]{10,2000}"),
}


class Security(Gate):
    """Fails if bandit's rules find something in Python, or if any artifact contains a secret."""

    name = "security"
    fails_as = FailureKind.CODE

    async def check(self, artifacts: Sequence[Artifact], context: GateContext) -> GateResult:
        findings = [finding for artifact in artifacts for finding in secrets_in(artifact)]
        if code := files_of(context.select(artifacts, "python")):
            findings += await ruff.check(code, RULES, IGNORED, context.run)
        return self.failed(format_findings(findings, files_of(artifacts))) if findings else self.passed()


def secrets_in(artifact: Artifact) -> list[Finding]:
    """Return a finding for each kind of secret that the artifact seems to contain, without quoting it."""
    return [
        Finding(artifact.file, 0, "", f"line {_line(artifact.data, match.start())} holds {kind}; leave it out")
        for kind, pattern in SECRETS.items()
        if (match := pattern.search(artifact.data))
    ]


def _line(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1
