"""Find code that reaches for pytest, frames, other modules' insides, or the end of the process.

Only the syntax tree is read: code that builds names at run time is refused where it does so. What only `if __name__ ==
"__main__"` reaches may end the process.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Problem = tuple[str, int, str]  # file, line, message

_MODULES = {
    **dict.fromkeys(("pytest", "_pytest", "pluggy", "unittest.mock", "nose"), "it can change how tests run"),
    **dict.fromkeys(("gc", "inspect.stack", "trace", "bdb", "pdb"), "it reaches objects of whatever calls the code"),
    **dict.fromkeys(("ctypes", "_ctypes", "cffi", "_testcapi", "posix"), "it reaches memory or calls of the system"),
    **dict.fromkeys(("runpy", "code", "codeop", "imp", "_imp", "zipimport"), "it runs code that cannot be checked"),
    "atexit": "it runs code after the tests",
    "linecache": "it reads sources of other modules",
    "__main__": "it is the program that runs the tests",
}
_ENDS = "it ends or replaces the process; accepted: an exception, or sys.exit in what only `main` reaches"
_FRAMES = "it reaches the frames of whatever calls the code"
_IMPORTS = "it changes how Python imports"
_NAMES = {
    **dict.fromkeys(
        [
            f"os.{name}"
            for name in (
                "_exit abort kill killpg fork forkpty execl execle execlp execlpe execv execve execvp execvpe "
                "posix_spawn posix_spawnp register_at_fork dup2 pidfd_open"
            ).split()
        ],
        _ENDS,
    ),
    **dict.fromkeys(("signal.raise_signal", "signal.pthread_kill", "signal.pidfd_send_signal"), _ENDS),
    **dict.fromkeys(
        [f"sys.{name}" for name in "_getframe _current_frames _current_exceptions settrace setprofile".split()]
        + [f"sys.{name}" for name in "monitoring call_tracing addaudithook _getframemodulename".split()]
        + ["threading.settrace", "threading.setprofile", "threading._shutdown", "threading._active"]
        + [f"inspect.{name}" for name in "stack currentframe trace getouterframes getinnerframes".split()]
        + [f"traceback.{name}" for name in ("walk_stack",)],
        _FRAMES,
    ),
    **dict.fromkeys(
        [f"inspect.{name}" for name in "getsource getsourcelines findsource getframeinfo".split()],
        "it reads sources of other modules",
    ),
    **dict.fromkeys(
        [f"sys.{name}" for name in "modules meta_path path_hooks path_importer_cache".split()]
        + ["importlib.reload", "importlib.util.spec_from_file_location", "importlib.machinery.SourceFileLoader"]
        + ["importlib.util.module_from_spec", "pkgutil.resolve_name", "importlib.sys", "importlib._bootstrap"],
        _IMPORTS,
    ),
    **dict.fromkeys(
        [f"unittest.{name}" for name in "SkipTest skip skipIf skipUnless expectedFailure case".split()],
        "it skips tests",
    ),
    "types.CodeType": "it changes other functions",
}
_ATTRIBUTES = {
    **dict.fromkeys(("f_back", "f_locals", "f_globals", "f_builtins", "f_trace", "f_code"), _FRAMES),
    **dict.fromkeys(("tb_frame", "gi_frame", "cr_frame", "ag_frame"), _FRAMES),
    **dict.fromkeys(("__globals__", "__builtins__", "__closure__", "__self__"), "it reaches other modules' insides"),
    **dict.fromkeys(("co_consts", "co_code"), "it reads or changes other functions"),
    "__subclasses__": "it reaches all classes of the process",
}
_STRINGS = {**_ATTRIBUTES, "_getframe": _FRAMES, "_exit": _ENDS, "__code__": _ATTRIBUTES["co_code"]}
_BUILTINS = {
    **dict.fromkeys(("exec", "eval", "compile"), "it runs code that cannot be checked; accepted: ast.literal_eval"),
    **dict.fromkeys(("__builtins__", "__loader__", "__spec__"), "it reaches Python's own insides"),
    "breakpoint": "it stops the process",
}
_OF_TESTS = {"pytest", "unittest", "unittest.mock", "unittest.case"}
_CODE_FACTS = {"co_argcount", "co_varnames", "co_name", "co_flags", "co_kwonlyargcount", "co_posonlyargcount"}
_SENSITIVE = {"os", "sys", "builtins", "importlib", "inspect", "signal", "threading"}
_REACHED = _SENSITIVE | {f"_{name}" for name in _SENSITIVE} | {"gc", "ctypes", "atexit", "linecache", "pytest"}
# Modules that are imported before the code, or may be: for a file of that name `import` would return another module.
_LOADED = (set(sys.stdlib_module_names) - {"code", "codeop", "imp", "runpy", "trace"}) | {"pytest", "_pytest", "pluggy"}

_MODULE_INSIDES = {"__dict__", "__getattribute__", "__setattr__", "__delattr__", "__loader__", "__spec__"}
_SETTABLE = {f"sys.{name}" for name in "stdout stderr stdin argv path dont_write_bytecode excepthook".split()}
_ALWAYS = {
    **dict.fromkeys(("__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__instancecheck__"), True),
    "__ne__": False,
}
_TEST_FILE = re.compile(r"(?:.*/)?(?:test_[^/\s]*|[^/\s]*_test|conftest)\.py")
_PROCESSES = re.compile(r"/proc/(?:self|thread-self|[\d%{]|\Z)")
_ENTRIES = {"main", "_main", "cli", "amain"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def check_files(files: Mapping[str, Mapping[str, Any]]) -> list[Problem]:
    """Return what is wrong with files of code under test, in the order of files and lines.

    Each file has a `text`. `program` is true if it is started as a program, and `tests` if it has tests of a model,
    which may use pytest. Invalid Python has no problems here, as it will not run.
    """
    own = {name.rpartition("/")[2].removesuffix(".py") for name in files} | {name.partition("/")[0] for name in files}
    own -= _LOADED
    problems: list[Problem] = []
    for name, file in files.items():
        try:
            tree = ast.parse(file["text"], name)
            checker = _Checker(tree, own, program=bool(file.get("program")), tests=bool(file.get("tests")))
            rows = set(checker.check())
        except (SyntaxError, ValueError):
            continue
        except (RecursionError, MemoryError):
            rows = {(1, 0, "it is nested too deeply to be checked")}
        problems += dict.fromkeys((name, line, message) for line, _, message in sorted(rows))
    return problems


def main(spec: Mapping[str, Any]) -> None:
    """Check the files of the spec, and print the problems as JSON."""
    json.dump(check_files(spec["guarded"]), sys.stdout)


class _Checker:
    def __init__(self, tree: ast.Module, own: set[str], *, program: bool, tests: bool) -> None:
        self._tests = tests
        self._tree = tree
        self._own = own
        # What names of the file stand for, such as `os.path`.
        self._imports: dict[str, str] = {}
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._bound = {name for node in ast.walk(tree) for name in _bound_names(node, self._parents)}
        self._classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        self._docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        self._ending = _may_end(tree, program)
        for node in ast.walk(tree):
            self._imports.update(_imported(node))

    def check(self) -> Iterator[tuple[int, int, str]]:
        # Yields line, end column and message of each problem.
        for node in ast.walk(self._tree):
            for name, why in self._problems(node):
                line, column = getattr(node, "lineno", 1), getattr(node, "end_col_offset", 0)
                yield line, column, f"{name} is not accepted in code that is tested: {why}"

    def _problems(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield from self._module(alias.name)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from self._imported_names(module, [alias.name for alias in names])
            case ast.Name(ctx=ast.Load()):
                yield from self._name(node)
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.Constant(value=str(text)) if id(node) not in self._docstrings:
                yield from self._string(node, text)
            case ast.Call():
                yield from self._call(node)
            case ast.Raise(exc=ast.Name(id="SystemExit") | ast.Call(func=ast.Name(id="SystemExit"))):
                yield from self._end("SystemExit", node)
            case ast.ClassDef():
                yield from _always_equal(node)
        yield from self._assigned(node)

    def _module(self, name: str) -> Iterator[tuple[str, str]]:
        if name.partition(".")[0] in self._own or (self._tests and name in _OF_TESTS):
            return
        for forbidden, why in _MODULES.items():
            if name == forbidden or name.startswith(f"{forbidden}."):
                yield f"import {name}", why

    def _imported_names(self, module: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        if module.partition(".")[0] in self._own or (self._tests and module in _OF_TESTS):
            return
        yield from self._module(module)
        for name in names:
            dotted = f"{module}.{name}"
            if dotted in _NAMES:
                yield f"from {module} import {name}", _NAMES[dotted]
            elif dotted in _MODULES:
                yield from self._module(dotted)
            elif name in _REACHED:
                yield f"from {module} import {name}", "it reaches a module through another one"
            elif name == "*" and module in _SENSITIVE:
                yield f"from {module} import *", "its names cannot be checked"

    def _name(self, node: ast.Name) -> Iterator[tuple[str, str]]:
        module = self._imports.get(node.id, "")
        parent = self._parents.get(node)
        if (
            module in _SENSITIVE
            and not self._tests
            and not isinstance(parent, ast.Attribute)
            and not self._is_constant_lookup(parent)
        ):
            yield f"{module} as a value", "what is done with it cannot be checked; accepted: its attributes by name"
        elif node.id in _BUILTINS and node.id not in self._bound and not module:
            yield node.id, _BUILTINS[node.id]
        elif node.id in ("exit", "quit") and node.id not in self._bound:
            yield from self._end(node.id, node)

    def _attribute(self, node: ast.Attribute) -> Iterator[tuple[str, str]]:
        dotted = self._dotted(node)
        parent = self._parents.get(node)
        root, _, rest = dotted.partition(".")
        if self._tests and dotted.startswith("unittest."):
            return
        if dotted in _NAMES:
            yield dotted, _NAMES[dotted]
        elif dotted == "sys.exit":
            yield from self._end(dotted, node)
        elif rest and root not in self._own and node.attr in _REACHED - {root}:
            yield dotted, "it reaches a module through another one"
        elif root in _SENSITIVE and node.attr in _MODULE_INSIDES:
            yield dotted, "it reaches names that cannot be checked"
        elif node.attr == "__subclasses__" and isinstance(node.value, ast.Name) and node.value.id in self._classes:
            return
        elif node.attr in _ATTRIBUTES:
            yield node.attr, _ATTRIBUTES[node.attr]
        elif node.attr == "__code__" and not (isinstance(parent, ast.Attribute) and parent.attr in _CODE_FACTS):
            yield "__code__", _STRINGS["__code__"]

    def _string(self, node: ast.Constant, text: str) -> Iterator[tuple[str, str]]:
        if text in _STRINGS:
            yield repr(text), _STRINGS[text]
        elif text == "__main__" and not self._is_compared(node):
            yield repr(text), _MODULES["__main__"]
        elif _TEST_FILE.fullmatch(text) and not self._tests:
            yield repr(text), "it is the name of a file of tests"
        elif _PROCESSES.match(text):
            yield repr(text), "it reaches processes"

    def _call(self, node: ast.Call) -> Iterator[tuple[str, str]]:
        called = self._dotted(node.func)
        constant = _text(node.args[0]) if node.args else None
        if called in ("importlib.import_module", "__import__"):
            if constant is None:
                yield called, "what it imports cannot be checked; accepted: the name of a module as a string"
            else:
                yield from self._module(constant)
                if constant.partition(".")[0] in _SENSITIVE | {"unittest"}:
                    yield f"{called}({constant!r})", "what is done with it cannot be checked; accepted: import"
        if called in ("getattr", "hasattr") and len(node.args) > 1:
            dotted = f"{self._dotted(node.args[0])}.{_text(node.args[1])}"
            if dotted in _NAMES:
                yield dotted, _NAMES[dotted]
            elif dotted == "sys.exit":
                yield from self._end(dotted, node)
        if called in ("setattr", "delattr") and node.args and self._is_foreign(node.args[0]):
            yield f"{called} of {self._dotted(node.args[0])}", "it changes another module"

    def _assigned(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load) or not self._is_foreign(node.value):
            return
        dotted = self._dotted(node)
        if dotted in _SETTABLE:
            return
        value = getattr(self._parents.get(node), "value", None)
        replaces = isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in self._bound)
        if dotted.partition(".")[0] in sys.stdlib_module_names or replaces:
            yield f"a new {dotted}", "it changes another module"

    def _is_foreign(self, node: ast.AST) -> bool:
        # Whether an expression is, or belongs to, a module that is not among the files.
        dotted = self._dotted(node)
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        imported = isinstance(root, ast.Name) and root.id in self._imports
        return bool(dotted) and imported and dotted.partition(".")[0] not in self._own

    def _dotted(self, node: ast.AST) -> str:
        # What a name stands for, such as `os.path.join`; empty if unknown.
        match node:
            case ast.Name(id=name):
                return self._imports.get(name, "" if name in self._bound else name)
            case ast.Attribute(value=value, attr=attribute):
                base = self._dotted(value)
                root = value
                while isinstance(root, ast.Attribute):
                    root = root.value
                is_imported = isinstance(root, ast.Name) and root.id in self._imports
                return f"{base}.{attribute}" if base and is_imported else ""
        return ""

    def _is_constant_lookup(self, parent: ast.AST | None) -> bool:
        match parent:
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(), *_]):
                return True
        return False

    def _is_compared(self, node: ast.AST) -> bool:
        parent = self._parents.get(node)
        return isinstance(parent, ast.Compare) and _compares_name(parent)

    def _end(self, name: str, node: ast.AST) -> Iterator[tuple[str, str]]:
        above: ast.AST | None = node
        while above is not None:
            if id(above) in self._ending:
                return
            above = self._parents.get(above)
        yield name, _ENDS


def _imported(node: ast.AST) -> dict[str, str]:
    match node:
        case ast.Import(names=names):
            return {
                alias.asname or alias.name.partition(".")[0]: alias.name
                if alias.asname
                else alias.name.partition(".")[0]
                for alias in names
            }
        case ast.ImportFrom(module=str(module), names=names, level=0):
            return {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
    return {}


def _bound_names(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [] if isinstance(parents.get(node), ast.ClassDef) else [name]
        case ast.ClassDef(name=name) | ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
            return [name]
    return []


def _always_equal(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for member in node.body:
        if not isinstance(member, _FUNCTIONS) or member.name not in _ALWAYS:
            continue
        match [part for part in member.body if not isinstance(part, ast.Expr)]:
            case [ast.Return(value=ast.Constant(value=value))] if value is _ALWAYS[member.name]:
                yield f"{member.name} that always returns {value}", "it lets every comparison hold"


def _compares_name(parent: ast.AST | None) -> bool:
    parts = () if parent is None else ast.walk(parent)
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in parts)


def _may_end(tree: ast.Module, program: bool) -> set[int]:
    # The nodes that may end the process: those that only run if the file is started as a program.
    functions: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            functions.setdefault(node.name, []).append(node)
    started: list[ast.AST] = [node for node in tree.body if isinstance(node, ast.If) and _compares_name(node.test)]
    if program:
        started = [node for node in tree.body if not isinstance(node, (*_FUNCTIONS, ast.ClassDef))]
    waiting = [*started, *(node for name in _ENTRIES for node in functions.get(name, ()))]
    reached: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in reached:
            continue
        reached.add(id(node))
        names = {name for part in ast.walk(node) for name in _called_names(part)}
        waiting += [function for name in names for function in functions.get(name, ())]
    return reached


def _called_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
            return [name]
    return []


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
