"""Decide which nodes of Ray's list can be used, and what they are called. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.cluster.messages import NodeFacts
from orchestrator.engine.protocol import VERSION


def why_rejected(facts: NodeFacts, library: str) -> str:
    """Return why a node cannot be used next to this machine's `library`, or nothing."""
    if facts.protocol != VERSION:
        return f"its engines speak version {facts.protocol} of the protocol; accepted: {VERSION}, this machine's"
    if facts.library != library:
        return f"its version of llama.cpp is {facts.library}; accepted: {library}, this machine's"
    return ""


def node_name(node: Mapping[str, Any], listed: Sequence[Mapping[str, Any]]) -> str:
    """Return the name that `ray start --node-name` gave, else the host's, made unique by a part of the id.

    `listed` are the nodes that are alive.
    """
    is_named = node["NodeName"] != node["NodeManagerAddress"]
    name = str(node["NodeName"] if is_named else node["NodeManagerHostname"])
    same = [other for other in listed if name in (other["NodeName"], other["NodeManagerHostname"]) and not is_named]
    return name if len(same) < 2 else f"{name}-{node['NodeID'][:6]}"
