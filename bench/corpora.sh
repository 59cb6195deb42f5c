#!/bin/bash
# Makes the corpora of real data from packages of Debian 12 and from what a Debian system has.
#
#   bench/corpora.sh [DIR]        (bench/corpora by default)
#
# DIR/tuning is what parameters and thresholds are chosen with; DIR/reporting is what the tables of docs/BENCHMARKS.md show.
# A corpus never changes sides, and no source package serves both: the script checks that. Packages come from
# `apt-get download` and stay in DIR/packages. A corpus is the files that match, one after the other by name, cut at 4 MiB.
set -euo pipefail
export LC_ALL=C

# half, name, form, package, pattern of paths (bash's, without ./; - is what the system itself has)
corpora='
tuning    c-source         plain   openafs-modules-dkms          *.[ch]
tuning    cpp-headers      plain   libeigen3-dev                 usr/include/*
tuning    csv              plain   ieee-data                     *.csv
tuning    elf-large        plain   git                           usr/bin/git
tuning    elf-objects      plain   grub-pc-bin                   *.mod
tuning    firmware         plain   u-boot-qemu                   *.bin
tuning    fonts            plain   fonts-dejavu-core             *.ttf
tuning    html             plain   postgresql-doc-15             *.html
tuning    icons-svg        plain   adwaita-icon-theme            *.svg
tuning    java-classes     jar     libguava-java                 *.jar
tuning    json-lines       jsonl   iso-codes                     *.json
tuning    python-bytecode  pyc     python3-pygments              *.py
tuning    python-source    plain   python3-django                *.py
tuning    russian          gunzip  manpages-ru                   *.gz
tuning    sound            plain   alsa-utils                    *.wav
tuning    sqlite           plain   ibus-table-wubi               *.db
tuning    terminfo         plain   ncurses-term                  usr/share/terminfo/*
tuning    word-list        plain   wamerican-large               usr/share/dict/american-english-large
reporting chinese          gunzip  manpages-zh                   *.gz
reporting code-tables      plain   unicode-data                  usr/share/unicode/[B-Z]*.txt
reporting cursors          plain   dmz-cursor-theme              usr/share/icons/*/cursors/*
reporting elf-large        plain   gdb                           usr/bin/gdb
reporting elf-small        plain   coreutils                     bin/*
reporting fonts            plain   fonts-liberation              *.ttf
reporting geo-database     plain   geoip-database                *.dat
reporting go-source        plain   golang-golang-x-tools-dev     *.go
reporting java-classes     jar     libbcprov-java                *.jar
reporting javascript       plain   node-typescript               */lib/typescript.js
reporting json             plain   node-mdn-browser-compat-data  */api/*.json
reporting logs             logs    -                             -
reporting man-pages        gunzip  manpages-dev                  *.gz
reporting package-list     avail   -                             -
reporting paths            paths   -                             -
reporting speech           plain   festvox-kallpc16k             *.group
reporting tables           plain   ncbi-data                     */data/*
reporting wasm             plain   wasi-libc                     *.a
'

main() {
    dir=$(mkdir -p "${1:-$(dirname "$0")/corpora}" && cd "${1:-$(dirname "$0")/corpora}" && pwd)
    mkdir -p "$dir"/{packages,tuning,reporting}
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    local half name form package pattern
    while read -r half name form package pattern; do
        [ -n "$half" ] || continue
        if [ "$package" != - ]; then
            echo "$half $(source_of "$package")" >>"$work/sources"
        fi
    done <<<"$corpora"
    local both
    both=$(sort -u "$work/sources" | cut -d' ' -f2 | sort | uniq -d)
    [ -z "$both" ] || { echo "in both halves: $both" >&2; exit 1; }
    while read -r half name form package pattern; do
        [ -n "$half" ] || continue
        [ -s "$dir/$half/$name" ] || make "$form" "$package" "$pattern" >"$work/corpus"
        [ -s "$dir/$half/$name" ] || mv "$work/corpus" "$dir/$half/$name"
        printf "| %s | %s | %s | %d |\n" "$half" "$name" "$(version_of "$package")" "$(stat -c %s "$dir/$half/$name")"
    done <<<"$corpora"
}

# The source package of a package.
source_of() {
    apt-cache show --no-all-versions "$1" | awk -v name="$1" '/^Source:/ { name = $2 } END { print name }'
}

# A package with its version.
version_of() {
    [ "$1" = - ] && echo "this system" && return
    dpkg-deb --show --showformat '${Package} ${Version}' "$dir/packages/${1}"_*.deb
}

# Writes the bytes of a corpus.
make() {
    local form=$1 package=$2 pattern=$3
    case $form in
    logs) cat /var/log/dpkg.log* /var/log/apt/term.log* | cut_off; return ;;
    avail) apt-cache dumpavail | cut_off; return ;;
    paths) sort -u /var/lib/dpkg/info/*.list | cut_off; return ;;
    esac
    local unpacked="$work/$package"
    if [ ! -d "$unpacked" ]; then
        compgen -G "$dir/packages/${package}_*.deb" >/dev/null ||
            (cd "$dir/packages" && apt-get download -qq -o APT::Sandbox::User=root "$package")
        mkdir "$unpacked"
        dpkg-deb --fsys-tarfile "$dir/packages/${package}"_*.deb | tar -x -C "$unpacked"
    fi
    (cd "$unpacked" && find . -type f | sed 's|^\./||' | sort) | while read -r path; do
        # shellcheck disable=SC2053
        [[ $path == $pattern ]] && [[ $path != usr/share/doc/*copyright ]] && echo "$unpacked/$path"
    done >"$work/files" || true
    case $form in
    plain) xargs -d '\n' cat <"$work/files" ;;
    gunzip) xargs -d '\n' zcat <"$work/files" ;;
    *) python3 -c "$python" "$form" <"$work/files" ;;
    esac | cut_off
}

# All that follows is read, too, so that no writer is stopped.
cut_off() {
    head -c 4194304
    cat >/dev/null
}

python='
import json, marshal, sys, zipfile
out = sys.stdout.buffer
for path in sys.stdin.read().splitlines():
    if sys.argv[1] == "jar":
        jar = zipfile.ZipFile(path)
        for name in sorted(jar.namelist()):
            out.write(jar.read(name))
    elif sys.argv[1] == "pyc":
        out.write(bytes(16) + marshal.dumps(compile(open(path, "rb").read(), path[path.index("/usr/"):], "exec")))
    elif sys.argv[1] == "jsonl":
        for entries in json.load(open(path)).values():
            for entry in entries if isinstance(entries, list) else []:
                out.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
'

main "$@"
