#!/usr/bin/env bash
# Make .venv with everything that Rollplex needs on a CPU. Run it as `make setup`; it does nothing if nothing changed.
#   PYTHON       interpreter to build .venv with; by default python3.11, or a python3 that is 3.11
#   TORCH_INDEX  package index for torch and torchvision alone
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/installed
want=$(cat requirements/*.txt requirements/setup.sh pyproject.toml | sha256sum)
works() { "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
if works && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    exit 0
fi

find_python() {
    local candidate
    for candidate in python3.11 python3; do
        # Debian's python3.11 comes without ensurepip, so it cannot make an environment until python3.11-venv is there
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    cat >&2 <<'TEXT'
make setup: needs Python 3.11 with venv, the version that the CPU builds of torch, vLLM and Megatron-Core share, and
found neither python3.11 nor a python3 of that version. Install it (Debian 12: apt install python3.11-venv) or name
one: make setup PYTHON=/path/to/python3.11
TEXT
    exit 1
}

say() { printf 'setup: %-48s' "$*"; }
done_in() { echo "$((SECONDS - began)) s"; }
# Versions are exact and complete, so pip has nothing to work out. Byte code is made when a module is first used:
# most of what is installed never is.
install() { "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --no-deps "$@"; }

if ! works; then
    python=${PYTHON:-$(find_python)}
    echo "setup: $venv with $("$python" --version) of $python"
    "$python" -m venv --clear "$venv"
fi
rm -f "$stamp"

began=$SECONDS
say "libraries (requirements/cpu.txt)"
install -r requirements/cpu.txt
done_in

began=$SECONDS
say "torch (requirements/cpu-torch.txt)"
if ! install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r requirements/cpu-torch.txt; then
    cat >&2 <<'TEXT'
make setup: found no CPU build of torch (PyPI itself has only a CUDA build of gigabytes). PyTorch's own index has it:
make setup TORCH_INDEX=https://download.pytorch.org/whl/cpu
TEXT
    exit 1
fi
done_in

began=$SECONDS
say "engines (requirements/cpu-engines.txt)"
install -r requirements/cpu-engines.txt
done_in

began=$SECONDS
say "rollplex, editable"
install --no-build-isolation -e .
done_in
echo "$want" >"$stamp"
