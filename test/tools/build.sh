#!/usr/bin/env bash
# Builds one development tool from its pinned Go module.
#
#   build.sh OUTPUT MODULE PACKAGE [go build flags]
#
# MODULE is a folder beside this script with a go.mod of its own, so that no
# tool's dependencies meet another's or the project's. OUTPUT is rebuilt only
# when that go.mod changed or another Go release is in use.
set -euo pipefail
out=$1 module=$2 package=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
want="$(cksum <"$here/$module/go.mod") $(go env GOVERSION) $package $*"
if [ -x "$out" ] && [ "$(cat "$out.stamp" 2>/dev/null)" = "$want" ]; then
  exit 0
fi
echo ">> building $(basename "$out") from its Go module (once; cached in bin/)"
start=$SECONDS
rm -f "$out.stamp"
cd "$here/$module"
# -v names each package as it is compiled; a line for every 100 shows that it lives.
CGO_ENABLED=0 go build -v -trimpath -o "$out.new" "$@" "$package" 2>&1 |
  awk -v name="$(basename "$out")" '
    /^go: downloading/ { d++; if (d % 50 == 0) { print "   " name ": " d " modules downloaded"; fflush() } next }
    /^[a-z0-9.\/_-]+$/ { n++; if (n % 100 == 0) { print "   " name ": " n " packages compiled"; fflush() } next }
    { print; fflush() }'
mv "$out.new" "$out"
printf '%s' "$want" >"$out.stamp"
echo "   $(basename "$out") done in $((SECONDS - start)) s"
