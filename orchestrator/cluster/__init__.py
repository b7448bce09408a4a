"""Several machines: engines on the nodes of a Ray cluster. An attachment, which the core does not import.

    daemon ── messages, a socket an engine ──▶ bridge process ── Ray ──▶ Host, an actor a node ──▶ engine processes

attachment  what a service gets: one machine, or the cluster that is configured
nodes       RayCluster: has the pool use the nodes that join, and describes them
process     NodeProcess: an engine's process on a node, as `Engine` uses it
messages    between daemon and bridge
bridge      the only process with a Ray driver: Ray ends its process when the cluster's control plane is gone
members     which nodes of Ray's list can be used, and what they are called
host        what runs on a node: starts engines, relays their bytes, stores model files
carrier     what the pool ships KV cells with; prefixes: their files, from one machine to another
store       model files of a node, by content
digests     SHA-256 of the head's model files
endpoints, commands   `GET /v1/nodes`, `orchestrator nodes`
"""
