#!/bin/sh
# Makes a virtual environment with every version pinned (constraints.txt).
# Usage: setup.sh DIR           Headway with all that its checks, tests and demonstration need (PYTHON=python3.12 chooses another Python)
#        setup.sh DIR docs      in such an environment, what builds the documentation site
#        setup.sh DIR package   the same for what builds the packages
#        setup.sh DIR deepspeed the same for what tests of DeepSpeed need
set -eu
venv=$1
python=${PYTHON:-python3}
say() { printf '%s\n' "$*" >&2; }
stop() { say "$@"; exit 1; }
can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_install() {
    say "installing the packages $* with apt-get"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "$@" >/dev/null; } ||
        say "apt-get could not install them; its message is above"
}
pip_install() {
    # Modules are compiled when they are first imported: most of what is installed never is.
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile -c constraints.txt "$@" ||
        stop "pip could not install the Python packages into $venv; its message is above. The next \`make\` tries again."
}

if [ -n "${2:-}" ]; then
    say "installing the extra \"$2\" of pyproject.toml into $venv"
    "$venv/bin/python" -c 'import sys, tomllib
with open("pyproject.toml", "rb") as file: print(*tomllib.load(file)["project"]["optional-dependencies"][sys.argv[1]], sep="\n")' "$2" >"$venv/$2.txt"
    pip_install -r "$venv/$2.txt"
    exit
fi

have_python() { "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
have_venv() { "$python" -c 'import venv, ensurepip' 2>/dev/null; }
if [ "$python" = python3 ] && { ! have_python || ! have_venv; } && can_install; then apt_install python3 python3-venv; fi
have_python || stop "Headway needs Python 3.11 or later, but \`$python\` is $("$python" --version 2>/dev/null || echo 'not installed')." \
    "Install one, or name one that is installed: make setup PYTHON=python3.12"
have_venv || stop "\`$python\` cannot make virtual environments. Install its module venv (Debian and Ubuntu: apt-get install python3-venv)."

# The simulator's inner loops are compiled where they can be; without a compiler they run interpreted, several times slower.
have_compiler() { command -v cc >/dev/null && "$python" -c 'import os, sysconfig as s; raise SystemExit(not os.path.exists(os.path.join(s.get_paths()["include"], "Python.h")))'; }
if ! have_compiler && can_install; then apt_install gcc libc6-dev python3-dev; fi
have_compiler || say "There is no C compiler, or no Python.h: the simulator will run interpreted, several times slower." \
    "To compile it, install gcc and python3-dev, remove $venv, and run \`make setup\` again."

if [ -x "$venv/bin/python" ] && [ "$python" != python3 ] && [ "$("$venv/bin/python" --version)" != "$("$python" --version)" ]; then
    stop "$venv has $("$venv/bin/python" --version), not $("$python" --version). To change it, remove $venv and run \`make setup\` again."
fi
[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
say "installing Headway and its Python packages into $venv; PyTorch is large, so the first time takes some minutes"
# headway-web is a program on the Python client, which no index has.
pip_install -e '.[controller,policy,train,dev]' -e ./headway_client
# A failed compilation does not fail the installation, and pip is quiet about it.
"$venv/bin/python" -c 'from simulator.kernel import compiled; raise SystemExit(not compiled())' ||
    say "The simulator's inner loops did not compile: it will run interpreted, several times slower." \
        "To see the compiler's error, run $venv/bin/pip install -v -e ."
