"""A Ray cluster on this machine, in a process of its own, so that the process of the tests does not import Ray.

`python -m tests.orchestrator.cluster.ray_nodes` starts the head, and prints its address. Then it carries out the
commands that it reads, one a line, each with the name of a node, and prints a line for each: `add`, `pid` (of the
raylet, of which all processes of a node are descendants), `remove`. After `add` and the name there may be a folder from
which the node's processes import first. `end-arbiter -` kills the actor that gives leases. It ends with its standard
input.
"""

import os
import sys


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, "node_name": "head-of-ray"}
    )
    nodes = {}
    print(cluster.address, flush=True)
    for line in sys.stdin:
        verb, name, *first = line.split()
        if verb == "add":
            path = os.pathsep.join([*first, os.environ.get("PYTHONPATH", "")])
            nodes[name] = cluster.add_node(
                num_cpus=0,
                node_name=name,
                object_store_memory=100 << 20,
                include_dashboard=False,
                env_vars={"PYTHONPATH": path},
            )
        elif verb == "remove":
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
        elif verb == "end-arbiter":
            ray.init(address=cluster.address, namespace="orchestrator", log_to_driver=False, logging_level="error")
            ray.kill(ray.get_actor("arbiter"))
            ray.shutdown()
        print(nodes[name].all_processes["raylet"][0].process.pid if name in nodes else 0, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
