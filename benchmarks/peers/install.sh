#!/usr/bin/env bash
# Install the peers, each apart from reliq and from the others: install.sh [FOLDER]
#
# FOLDER is .peers of the repository unless given. What is installed is not installed again, so a
# second run is quick; a peer whose language is not on this machine is skipped, with one line that
# says why. Each peer gets FOLDER/NAME/run, which takes the words of README.md.

set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
into=${1:-$root/.peers}
mkdir -p "$into" && into=$(cd "$into" && pwd) || exit 1
uv=$root/.venv/bin/uv
installed=0
skipped=0
trap 'rm -f "$into/log"' EXIT

skip() { # NAME WHY
  skipped=$((skipped + 1))
  rm -f "$into/$1/run"
  echo "skipped $skipped: $1: $2"
}

failed() { # the last line of a log that says something
  grep -v '^ *$' "$into/log" | tail -n 1
}

runnable() { # NAME COMMAND...: write FOLDER/NAME/run
  local name=$1
  shift
  {
    echo '#!/bin/sh'
    printf 'exec'
    printf " '%s'" "$@"
    printf ' "$@"\n'
  } >"$into/$name/run"
  chmod +x "$into/$name/run"
  installed=$((installed + 1))
  echo "installed $installed: $name"
}

python_since() { # MINOR: a Python 3.MINOR or later, the repository's own when it is one
  local python
  for python in "$root/.venv/bin/python" python3 python3.{14,13,12,11} ~/.pyenv/versions/*/bin/python; do
    if "$python" -c "import sys; sys.exit(sys.version_info < (3, $1))" 2>/dev/null; then
      "$python" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  return 1
}

python_peer() { # NAME MINOR
  local name=$1 venv=$into/$1/venv wants=$here/$1/requirements.txt python
  if ! python=$(python_since "$2"); then
    skip "$name" "it needs Python 3.$2 or later"
    return
  fi
  mkdir -p "$into/$name"
  if ! cmp -s "$wants" "$venv/installed.txt"; then
    rm -rf "$venv"
    if [ -x "$uv" ]; then
      "$uv" venv --quiet --no-python-downloads --python "$python" "$venv" &&
        "$uv" pip install --quiet --python "$venv/bin/python" --requirement "$wants"
    else
      "$python" -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$wants"
    fi >"$into/log" 2>&1 || { skip "$name" "$(failed)"; return; }
    cp "$wants" "$venv/installed.txt"
  fi
  runnable "$name" env "PYTHONPATH=$here" "$venv/bin/python" "$here/$name/adapter.py"
}

# Node comes as a package, too: graphile-worker wants a newer one than many machines have. A
# module is looked for beside the file that names it, hence the link and the flags.
node_peer() { # NAME
  local name=$1 home=$into/$1
  if ! command -v npm >/dev/null; then
    skip "$name" "there is no npm"
    return
  fi
  mkdir -p "$home"
  if ! cmp -s "$here/$name/package.json" "$home/package.json"; then
    rm -rf "$home/node_modules"
    cp "$here/$name/package.json" "$home/wanted.json"
    (cd "$home" && mv wanted.json package.json && npm install --no-package-lock --no-audit --no-fund) \
      >"$into/log" 2>&1 || { rm -f "$home/package.json"; skip "$name" "$(failed)"; return; }
  fi
  ln -sf "$here/$name/adapter.mjs" "$home/adapter.mjs"
  runnable "$name" "$home/node_modules/.bin/node" \
    --preserve-symlinks --preserve-symlinks-main "$home/adapter.mjs"
}

go_peer() { # NAME
  local name=$1
  if ! command -v go >/dev/null; then
    skip "$name" "there is no Go"
    return
  fi
  mkdir -p "$into/$name"
  go build -C "$here/$name" -o "$into/$name/adapter" . >"$into/log" 2>&1 ||
    { skip "$name" "$(failed)"; return; }
  runnable "$name" "$into/$name/adapter"
}

python_peer pgqueuer 11
python_peer procrastinate 11
python_peer oban 12
node_peer graphile-worker
go_peer river
echo "$installed installed, $skipped skipped"
