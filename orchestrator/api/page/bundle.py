"""Put modules of the page into one script, for a file that is opened without a daemon.

A browser loads no modules from files, so each module becomes a function that returns its exports. The modules are ours
and those in `vendor/`, so the few forms of `import` and `export` that they have are all that is understood.
"""

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_IMPORT_MAP: Final = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)
_IMPORT: Final = re.compile(r'\bimport\s*(\{[^}]*\}|\w+)\s*from\s*"([^"]+)";?')
_EXPORT_FROM: Final = re.compile(r'\bexport\s*\{([^}]*)\}\s*from\s*"([^"]+)";?')
_EXPORT_LIST: Final = re.compile(r"\bexport\s*\{([^}]*)\};?")
_EXPORT_DEFAULT: Final = re.compile(r"\bexport default ")
_EXPORT: Final = re.compile(r"^export ((?:async )?function\*?|class|const|let) (\w+)", re.MULTILINE)
_SOURCE_MAP: Final = re.compile(r"//# sourceMappingURL=\S+")


def static_text(name: str) -> str:
    """Return a file of the page by its path below `static/`."""
    return (files("orchestrator.api.page") / "static" / name).read_text(encoding="utf-8")


def bundle(source: str) -> str:
    """Bundle a module, given its text, and its imports from `static/` into one script."""
    modules = _Modules(_import_map())
    last = modules.function(source)
    return "".join([*modules.functions, f"{last};\n"])


def _import_map() -> Mapping[str, str]:
    element = _IMPORT_MAP.search(static_text("index.html"))
    assert element is not None, "index.html has an import map"
    places: Mapping[str, str] = json.loads(element[1])["imports"]
    return {name: place.removeprefix("/page/") for name, place in places.items()}


class _Modules:
    """The modules so far, each after those that it imports."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.functions: list[str] = []
        self._places = places
        self._names: dict[str, str] = {}  # by file, the variable that holds its exports

    def add(self, specifier: str) -> str:
        """Add a module unless it is there. Return the variable that holds its exports."""
        file = self._places.get(specifier, specifier.removeprefix("./"))
        if file not in self._names:
            function = self.function(static_text(file))
            self._names[file] = f"module{len(self._names)}"
            self.functions.append(f"const {self._names[file]} = {function};\n")
        return self._names[file]

    def function(self, source: str) -> str:
        """Return a module as an expression for its exports; what it imports is added."""
        exports: list[str] = []

        def import_from(match: re.Match[str]) -> str:
            names = match[1].replace(" as ", ": ") if match[1].startswith("{") else f"{{ default: {match[1]} }}"
            return f"const {names} = {self.add(match[2])};"

        def export_from(match: re.Match[str]) -> str:
            module = self.add(match[2])
            exports.extend(f"{name.strip()}: {module}.{name.strip()}" for name in match[1].split(","))
            return ""

        def export_list(match: re.Match[str]) -> str:
            pairs = (name.strip().split(" as ") for name in match[1].split(","))
            exports.extend(f"{pair[-1]}: {pair[0]}" for pair in pairs)
            return ""

        def export(match: re.Match[str]) -> str:
            exports.append(match[2])
            return f"{match[1]} {match[2]}"

        text = _EXPORT_FROM.sub(export_from, _IMPORT.sub(import_from, _SOURCE_MAP.sub("", source)))
        text = _EXPORT.sub(export, _EXPORT_LIST.sub(export_list, text))
        if _EXPORT_DEFAULT.search(text):
            text = _EXPORT_DEFAULT.sub("const $default = ", text)
            exports.append("default: $default")
        return f"(() => {{\n{text}\nreturn {{ {', '.join(exports)} }};\n}})()"
