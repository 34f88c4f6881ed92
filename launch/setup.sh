# Makes a virtual environment and installs what the given requirements files list; sourced by the
# other scripts of this folder, which then run "$python". Does nothing when the same files were
# installed before. Three variables of the environment say otherwise:
#   PYTHON      the Python that makes the virtual environment (python3)
#   VENV        its folder (.venv)
#   RESOLUTION  `lowest` installs the oldest versions that the files allow, by uv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv="${VENV:-.venv}"
python="$venv/bin/python"

setup() {
  local base="${PYTHON:-python3}" stamp file arguments=()
  if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "error: Python 3.11 or newer is needed; $base is" \
      "$("$base" --version 2>&1 || true). Set PYTHON=/path/to/python3.11" >&2
    exit 1
  fi
  stamp="$venv/installed-$({ cat "$@"; echo "${RESOLUTION:-}"; } | sha256sum | cut -c1-16)"
  if [ ! -e "$stamp" ]; then
    echo "installing $* into $venv" >&2
    "$base" -m venv "$venv"
    for file in "$@"; do arguments+=(-r "$file"); done
    if [ "${RESOLUTION:-}" = lowest ]; then
      "$python" -m pip install --quiet --disable-pip-version-check uv
      "$python" -m uv pip install --quiet --python "$python" --resolution lowest-direct "${arguments[@]}"
    else
      "$python" -m pip install --quiet --disable-pip-version-check "${arguments[@]}"
    fi
    touch "$stamp"
  fi
}
