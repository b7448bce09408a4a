"""Several machines: engines on the nodes of a Ray cluster. An attachment, which the core does not import.

    daemon ── messages, a socket an engine ──▶ bridge process ── Ray, TCP ──▶ Host, one a node ──▶ engine processes

attachment  what a service gets: one machine, or the cluster that is configured
nodes       RayCluster: has the pool use the nodes that join, and describes them
process     NodeProcess: an engine's process on a node, as `Engine` uses it
messages    between daemon and bridge
bridge      the only process with a Ray driver: Ray ends its process when the cluster's control plane is gone
driver      connects it with Ray, or says why that is impossible; control_plane: asks whether Ray is there
ray_node    a node of Ray as the bridge sees it: its actor and the bytes of its engines
members     which nodes of Ray's list can be used, and what they are called
host        what runs on a node: starts engines, stores model files
relay       the connections between the head and engines on nodes; tls: encrypts them as Ray's are
carrier     what the pool ships KV cells with; prefixes: their files, from one machine to another
store       model files of a node, by content
digests     SHA-256 of the head's model files
endpoints, commands   `GET /v1/nodes`, `orchestrator nodes`, `orchestrator standby`, `orchestrator cluster start`
ray_start   what the last one does; environment: that of Ray, and of processes that talk to it
listening   has these processes listen at one address: bind.c; exposure: at which ones Ray accepts connections

A second machine that takes over:

lease       the rules by which one of two machines is the head
arbiter, arbiter_client   gives the lease: an actor of Ray, and how to ask it
head        the daemon's cluster with a lease
replicator  sends what the journal commits to the standby; ends the daemon without a lease
history     what was sent lately, for a standby that comes back
stream      the connection between the two; tls: its encryption, with Ray's certificates
standby     what the second machine runs until it becomes the daemon
member      what a state folder remembers of this
"""
