# Shared by the scripts beside it, in POSIX sh: one virtual environment in .venv, filled only when something changed.
# Sourced after `set -eu`; sets $root and $venv.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv
stamp=$venv/agent-stamp
extra_missing=extra-missing

# Uncompiled, a run takes three times as long (docs/decisions/0002-start-up.md), and this variable would keep the
# tree's own modules uncompiled for ever.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    say "$@"
    exit 1
}

is_python_usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Prints the first Python that is new enough; $PYTHON comes first.
find_python() {
    for candidate in "${PYTHON:-}" python3 python3.11 python3.12 python3.13 python3.14 python; do
        if [ -n "$candidate" ] && is_python_usable "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "no Python 3.11 or newer on PATH: install one, or name it as PYTHON=/path/to/python3"
}

# What decides whether pip must run: the project file, the Python and the place (a moved environment is a broken one).
stamp_key() {
    printf '%s|%s|%s' "$(cksum <"$root/pyproject.toml")" "$("$venv/bin/python" -V 2>&1)" "$root"
}

is_stamped() { [ -f "$stamp" ] && grep -Fqx -- "$(stamp_key) $1" "$stamp"; }

make_venv() {
    if is_python_usable "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1 &&
        grep -Fq -- "|$root " "$stamp" 2>/dev/null; then
        return
    fi
    python=$(find_python)
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        die "$python has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv) and run this again"
    say "making .venv with $("$python" -V 2>&1)"
    "$python" -m venv --clear "$venv" || die "$python -m venv failed: see above"
    printf 'made|%s \n' "$root" >"$stamp"
}

# pip with its words kept in a file; they are shown when it fails.
pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --compile \
        --only-binary xllamacpp --editable "$root${1:+[$1]}" >"$venv/pip.log" 2>&1
}

# Compiles what pip did not: the tree's own modules, and packages that an older install left uncompiled. Some packages
# carry files for other Pythons, which cannot be compiled and need not be.
compile_bytecode() {
    "$venv/bin/python" -m compileall -qq "$venv/lib" "$root/cli" "$root/engine" >/dev/null 2>&1 || true
}

# ensure_installed EXTRA...: the project, editable, with these extras; free when the stamps are all there.
# Where the wheel of the extra `local` does not exist it goes on without, and has_extra says no.
ensure_installed() {
    missing=''
    for extra in "$@"; do
        is_stamped "$extra" || is_stamped "$extra $extra_missing" || missing=$missing,$extra
    done
    [ -n "$missing" ] || return 0
    make_venv
    say "installing agent with ${missing#,} (once; a minute or two)"
    marked=''
    if ! pip_install "${missing#,}"; then
        reason=$(sed -n 's/^ERROR: //p' "$venv/pip.log" | tail -n 1)
        others=$(printf '%s,' "$missing" | sed 's/,local,/,/; s/^,//; s/,$//')
        if [ ",$others" = "$missing" ] || ! pip_install "$others"; then
            cat "$venv/pip.log" >&2
            die "pip could not install the project: see above"
        fi
        say "going on without the embedded model, its package does not install here ($reason)"
        marked=local
    fi
    compile_bytecode
    for extra in "$@"; do
        if [ "$extra" = "$marked" ]; then extra="$extra $extra_missing"; fi
        is_stamped "$extra" || printf '%s %s\n' "$(stamp_key)" "$extra" >>"$stamp"
    done
}

has_extra() { is_stamped "$1"; }
