"""Start a program of this folder; the texts of its modules are in a document on stdin."""

import json
import os
import sys
import types

document = json.load(sys.stdin)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for name, text in document["modules"].items():
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), vars(module))  # noqa: S102 - a program of ours
sys.modules[document["main"]].main(document["spec"])
