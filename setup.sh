#!/bin/sh
# Makes a virtual environment with everything pinned. Usage: setup.sh DIR   (PYTHON=python3.12 to choose another)
set -eu
venv=$1
python=${PYTHON:-python3}
say() { printf '%s\n' "$*" >&2; }

have_python() { "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
have_venv() { "$python" -c 'import venv, ensurepip' 2>/dev/null; }

if ! have_python || ! have_venv; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing python3 and python3-venv"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null
    fi
    have_python || { say "Headway needs Python 3.11 or later; $python is not. Install it, or set PYTHON=..."; exit 1; }
    have_venv || { say "$python has no venv module; install python3-venv"; exit 1; }
fi

# The simulator's inner loops are compiled where they can be; without a compiler they run interpreted, several times slower.
have_compiler() { command -v cc >/dev/null && "$python" -c 'import os, sysconfig as s; raise SystemExit(not os.path.exists(os.path.join(s.get_paths()["include"], "Python.h")))'; }
if ! have_compiler && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing a C compiler and python3-dev"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev python3-dev >/dev/null; } || true
fi
have_compiler || say "no C compiler, or no Python.h (python3-dev): the simulator will run interpreted, several times slower"

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e '.[controller,policy,train,dev]'
# A failed compilation does not fail the installation, and pip is quiet about it.
"$venv/bin/python" -c 'from simulator.kernel import compiled; raise SystemExit(not compiled())' ||
    say "the simulator's inner loops did not compile: it will run interpreted, several times slower. Run $venv/bin/pip install -v -e . to see the compiler's error"
