"""The binding to llama.cpp declares what llama.h declares, as a C compiler sees it, and only what the product calls."""

import ast
import ctypes
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import orchestrator.engine.llama.binding as binding
from tests.orchestrator.engine import llama_reference
from tests.orchestrator.engine.llama_builds import COMPILER, header_folder

ROOT = Path(__file__).parents[3]
STRUCTS = (
    binding.llama_token_data,
    binding.llama_token_data_array,
    binding.llama_batch,
    binding.llama_model_kv_override,
    binding.llama_model_params,
    binding.llama_context_params,
    *llama_reference.STRUCTS,
)
RESERVE = "_reserve"
CONSTANTS = {name: value for name, value in vars(binding).items() if name.startswith(("LLAMA_", "GGML_"))}
KINDS = (
    "_Generic(({}), float: 'f', double: 'f', _Bool: 'b', "
    "int: 'i', unsigned: 'i', long: 'i', unsigned long: 'i', default: 'o')"
)


def fields_of(struct: type[ctypes.Structure]) -> Iterator[tuple[str, int, int, str]]:
    """Yield name, offset, size and kind of each field; those of a union without a name count as the struct's own."""
    for name, kind, *_ in struct._fields_:
        if name == RESERVE:
            continue
        field = getattr(struct, name)
        if issubclass(kind, ctypes.Union):
            for inner, of_inner, *_ in kind._fields_:
                yield inner, field.offset, ctypes.sizeof(of_inner), kind_of(of_inner)
        else:
            yield name, field.offset, ctypes.sizeof(kind), kind_of(kind)


def kind_of(kind: Any) -> str:
    if kind is ctypes.c_bool:
        return "b"
    if kind in (ctypes.c_float, ctypes.c_double):
        return "f"
    numbers = (ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64)
    return "i" if kind in numbers else "o"


def size_of(struct: type[ctypes.Structure]) -> int:
    """Return the size of a struct without the reserve for fields of later versions."""
    size = getattr(struct, RESERVE).offset if hasattr(struct, RESERVE) else ctypes.sizeof(struct)
    alignment = ctypes.alignment(struct)
    return -(-size // alignment) * alignment


@pytest.fixture(scope="module")
def said_by_compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a C program prints of sizes, fields and constants, by name."""
    lines = []
    for struct in STRUCTS:
        name = f"struct {struct.__name__}"
        lines.append(f'printf("{struct.__name__} %zu\\n", sizeof({name}));')
        for field, *_ in fields_of(struct):
            value = f"(({name} *) 0)->{field}"
            shown = f"offsetof({name}, {field}), sizeof({value}), {KINDS.format(value)}"
            lines.append(f'printf("{struct.__name__}.{field} %zu %zu %c\\n", {shown});')
    lines += [f'printf("{name} %lld\\n", (long long) {name});' for name in CONSTANTS]
    source = "\n".join(("#include <stddef.h>", "#include <stdio.h>", "#include <llama.h>", "int main(void) {", *lines))
    folder = tmp_path_factory.mktemp("layout")
    (folder / "layout.c").write_text(f"{source}\nreturn 0;\n}}\n")
    command = [*COMPILER, f"-I{header_folder()}", "-o", str(folder / "layout"), str(folder / "layout.c")]
    subprocess.run(command, check=True)
    printed = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True).stdout
    return dict(line.split(" ", 1) for line in printed.splitlines())


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_structs_have_the_layout_of_the_header(
    said_by_compiler: dict[str, str], struct: type[ctypes.Structure]
) -> None:
    name = struct.__name__
    # That of another release, if the tests run with one.
    layouts = [struct, *binding.LAYOUTS.get(struct, ())]
    layout = next(each for each in layouts if str(size_of(each)) == said_by_compiler[name])
    declared = {f"{name}.{field}": f"{offset} {size} {kind}" for field, offset, size, kind in fields_of(layout)}
    known = {field: text for field, text in said_by_compiler.items() if field.startswith(f"{name}.")}
    assert known.items() <= declared.items()


def test_constants_have_the_values_of_the_header(said_by_compiler: dict[str, str]) -> None:
    assert {name: str(value) for name, value in CONSTANTS.items()} == {
        name: said_by_compiler[name] for name in CONSTANTS
    }


@pytest.fixture(scope="module")
def header() -> str:
    """The header without comments, macros and line breaks."""
    command = [*COMPILER, "-E", "-P", f"-I{header_folder()}", str(header_folder() / "llama.h")]
    return " ".join(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("module", [binding, llama_reference], ids=lambda module: module.__name__)
def test_functions_have_the_signatures_of_the_header(header: str, module: ModuleType) -> None:
    typedefs = {match[2]: match[1] for match in re.finditer(r"typedef (\w+) (llama_\w+);", header)}
    for name, signature in module.SIGNATURES.items():
        declared = re.search(rf"(?:[;}}]|^)([^;{{}}]*?)\b{name} ?\(([^()]*)\)", header)
        assert declared is not None, name
        result, arguments = declared.groups()
        parameters = [] if arguments.strip() in ("", "void") else arguments.split(",")
        expected = [of_c(result, typedefs), *(of_c(parameter, typedefs, named=True) for parameter in parameters)]
        assert list(map(of_ctypes, signature)) == expected, name


MANGLED = {ctypes.c_bool: "b", ctypes.c_uint32: "j"}
"""Types of arguments in symbols of C++."""


@pytest.mark.parametrize("name", binding.EXTENSIONS)
def test_functions_of_cpp_have_the_signatures_of_their_symbols(name: str) -> None:
    _, *arguments = binding.EXTENSIONS[name]
    handle = "PK11llama_model" if name.startswith("llama_model_") else "P13llama_context"
    mangled = MANGLED | {ctypes.c_void_p: handle}
    assert binding.symbol(name) == f"_Z{len(name)}{name}{''.join(mangled[kind] for kind in arguments)}"
    assert getattr(binding, name), "the installed library has it"


NUMBERS = {
    "void": "nothing",
    "bool": "bool",
    "_Bool": "bool",
    "float": "float",
    "int8_t": "int8",
    "int32_t": "int32",
    "int": "int32",
    "uint32_t": "uint32",
    "uint64_t": "uint64",
    "size_t": "uint64",
}


def of_c(text: str, typedefs: dict[str, str], *, named: bool = False) -> str:
    """Return what kind of value a C type is; `named` if the name of a parameter follows it."""
    if "*" in text:
        return "pointer"
    words = [word for word in text.split() if word not in ("const", "extern")]
    if named:
        words.pop()
    if words[0] == "enum":
        return "int32"
    name = words[-1]
    name = typedefs.get(name, name)
    if name in ("llama_memory_t", "ggml_log_callback"):
        return "pointer"
    return NUMBERS.get(name, name)


def of_ctypes(kind: Any) -> str:
    """Return the same for a type of ctypes."""
    if kind is None:
        return "nothing"
    if kind in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(kind, ctypes._Pointer | ctypes._CFuncPtr):  # type: ignore[attr-defined]
        return "pointer"
    if issubclass(kind, ctypes.Structure):
        return str(kind.__name__)
    names = {ctypes.c_bool: "bool", ctypes.c_float: "float", ctypes.c_int32: "int32", ctypes.c_uint32: "uint32"}
    return names.get(kind) or {ctypes.c_uint64: "uint64", ctypes.c_int64: "int64"}[kind]


def used_names(folder: Path, module: str) -> set[str]:
    """Return what the files below a folder use of a module, under whatever name they import it."""
    used: set[str] = set()
    for file in folder.rglob("*.py"):
        source = file.read_bytes()
        if module.encode() not in source:  # to parse all files takes seconds
            continue
        tree = ast.parse(source)
        imports = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        names = {alias.asname for alias in imports if alias.name == module}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
                used.add(node.attr)
    return used


def test_only_what_the_product_uses_is_declared() -> None:
    used = used_names(ROOT / "orchestrator", binding.__name__)
    source = Path(binding.__file__).read_text()
    used |= set(re.findall(r'functions(?:\.get\(|\[)"(\w+)"', source))
    used |= {name for name in CONSTANTS if source.count(name) > 1}
    used |= binding._DEFAULTS.keys()
    assert {*binding.SIGNATURES, *binding.EXTENSIONS, *CONSTANTS} - used == set()


def test_everything_that_is_used_is_declared() -> None:
    used = used_names(ROOT / "orchestrator", binding.__name__) | used_names(ROOT / "benchmarks", binding.__name__)
    assert [name for name in used if not hasattr(binding, name)] == []
    assert {name for names in binding.OPTIONAL.values() for name in names} <= {*binding.SIGNATURES, *binding.EXTENSIONS}


def test_the_header_is_that_of_the_pinned_package() -> None:
    assert f"llama-cpp-python {version('llama-cpp-python')}" == binding.HEADER


def test_an_undeclared_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'llama_synth'"):
        _ = binding.llama_synth
