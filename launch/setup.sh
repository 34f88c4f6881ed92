# Creates a virtual environment and installs the given requirements files. The other scripts of this
# folder source it, call `setup FILE …` and then run "$python". `setup` skips files that are already
# installed. Environment variables and their defaults:
#   PYTHON      the Python that creates the virtual environment (python3)
#   VENV        the folder of the virtual environment (.venv)
#   RESOLUTION  which of the allowed versions to install: the newest (unset); the oldest, with uv
#               (`lowest`); the versions in constraints.txt, which reproduce the quickstart's results
#               (`constraints`)
# If PYTHON or RESOLUTION changes, the virtual environment is created again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv="${VENV:-.venv}"
python="$venv/bin/python"

setup() {
  local base="${PYTHON:-python3}" mode stamp digest file constraints=() clear=() arguments=()
  if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "error: Python 3.11 or newer is needed; $base is" \
      "$("$base" --version 2>&1 || true). Set PYTHON=/path/to/python3.11" >&2
    exit 1
  fi
  case "${RESOLUTION:-}" in
    '' | lowest) ;;
    constraints) constraints=(constraints.txt) ;;
    *)
      echo "error: RESOLUTION must be lowest, constraints or unset; got $RESOLUTION" >&2
      exit 1
      ;;
  esac
  mode="$("$base" --version 2>&1), ${RESOLUTION:-newest}"
  stamp="$venv/installed-$(echo "$*" | sha256sum | cut -c1-16)"
  digest="$({ cat "$@" "${constraints[@]}"; echo "$mode"; } | sha256sum)"
  if [ "$(cat "$stamp" 2>/dev/null || true)" != "$digest" ]; then
    echo "installing $* into $venv" >&2
    # Otherwise pip would keep the installed versions.
    if [ -e "$venv/mode" ] && [ "$(cat "$venv/mode")" != "$mode" ]; then clear=(--clear); fi
    "$base" -m venv "${clear[@]}" "$venv"
    echo "$mode" > "$venv/mode"
    for file in "${constraints[@]}"; do arguments+=(-c "$file"); done
    for file in "$@"; do arguments+=(-r "$file"); done
    if [ "${RESOLUTION:-}" = lowest ]; then
      "$python" -m pip install --quiet --disable-pip-version-check uv
      "$python" -m uv pip install --quiet --python "$python" --resolution lowest-direct "${arguments[@]}"
    else
      "$python" -m pip install --quiet --disable-pip-version-check "${arguments[@]}"
    fi
    echo "$digest" > "$stamp"
  fi
}
