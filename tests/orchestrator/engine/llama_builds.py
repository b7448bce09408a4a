"""Other builds of llama.cpp for tests, made of copies of the libraries that engines load by default."""

import shutil
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from orchestrator.registry.llama_library import default_library, installed_library

# Parts of a file of ELF64: place and number of the sections; name, type, place, size and link of one; a symbol.
HEADER: Final = struct.Struct("<40xQ12xH")
SECTION: Final = struct.Struct("<II16xQQI20x")
SYMBOL: Final = struct.Struct("<I20x")
OTHER, HIDDEN = 5, 2  # where a symbol's visibility is, and the one that keeps it from being found from outside
DYNAMIC_SYMBOLS: Final = 11
SONAME: Final = "libllama.so.0"  # by which programs find the library that they were linked with
COMPILER: Final = ("cc", "-std=c11", "-Wall", "-Werror")


def original() -> Path:
    """Return the library that engines load by default."""
    library = default_library()
    assert library is not None, "llama-cpp-python is installed for tests"
    return library


def header_folder() -> Path:
    """Return the folder with the llama.h of the default library: of its own build, or of the installed package."""
    installed = installed_library()
    assert installed is not None, "llama-cpp-python is installed for tests"
    folders = (original().parent.parent / "include", installed.parents[2] / "include")
    return next(folder for folder in folders if (folder / "llama.h").is_file())


def copied(folder: Path) -> Path:
    """Copy the default library and those of ggml that it loads into a new folder. Returns the folder."""
    folder.mkdir()
    for file in original().parent.glob("lib*.so*"):
        if not file.name.startswith("libmtmd"):
            shutil.copy2(file, folder / file.name)
    return folder


def without(folder: Path, functions: Iterable[str]) -> Path:
    """Return a copy of the default library that lacks some functions: they are hidden in its table of symbols."""
    library = copied(folder) / original().name
    data = bytearray(library.read_bytes())
    sections = [
        SECTION.unpack_from(data, HEADER.unpack_from(data)[0] + number * SECTION.size)
        for number in range(HEADER.unpack_from(data)[1])
    ]
    (_, _, start, size, link), *_ = (section for section in sections if section[1] == DYNAMIC_SYMBOLS)
    names = sections[link][2]
    left = set(functions)
    for at in range(start, start + size, SYMBOL.size):
        place = names + SYMBOL.unpack_from(data, at)[0]
        name = data[place : data.index(0, place)].decode()
        if name in left:
            data[at + OTHER] = HIDDEN
            left.remove(name)
    assert not left, "the library has these functions"
    library.write_bytes(data)
    return folder


def with_shim(folder: Path, **functions: str) -> Path:
    """Return a copy of the default library some of whose functions are replaced by those of C programs.

    They are given by name, as text of C after llama.h. `ORIGINAL(name)` there is the address of the original function.
    """
    copied(folder)
    hidden = "".join(f"#define {name} hidden_{name}\n" for name in functions)  # they may have other types
    shown = "".join(f"#undef {name}\n" for name in functions)
    source = f"#include <dlfcn.h>\n#include <stdlib.h>\n{hidden}#include <llama.h>\n{shown}"
    source += f'#define ORIGINAL(name) dlsym(dlopen("{SONAME}", RTLD_NOW | RTLD_NOLOAD), #name)\n'
    (folder / "shim.c").write_text(source + "\n".join(functions.values()))
    links = ("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", f"-L{folder}", f"-l:{SONAME}", "-ldl")
    shim = folder / "shim.so"
    command = [*COMPILER, "-shared", "-fPIC", f"-I{header_folder()}", "-o", str(shim), str(folder / "shim.c"), *links]
    subprocess.run(command, check=True)
    shim.replace(folder / original().name)
    return folder
