#!/bin/sh
# Builds the packages of Headway for one release of Debian, in a root of that release: .deb, .rpm and SBOM. Needs root and debootstrap.
# Usage: build.sh RELEASE FOLDER      such as build.sh bookworm dist; NFPM names nfpm, ROOTS the folder of roots (they are kept)
set -eu
release=$1
cd "$(dirname "$0")/../.."
source=$PWD
mkdir -p "$2"
out=$(cd "$2" && pwd)
roots=${ROOTS:-$source/build/roots}
root=$roots/$release
nfpm=${NFPM:-$source/.venv/bin/nfpm}
say() { printf '%s\n' "$*" >&2; }
stop() { say "$@"; exit 1; }
[ "$(id -u)" = 0 ] || stop "build.sh needs root, because it makes a root of $release and enters it"
command -v debootstrap >/dev/null || stop "there is no debootstrap here: apt-get install debootstrap"
[ -x "$nfpm" ] || stop "there is no nfpm at $nfpm: \`make packages\` installs it"

if [ ! -e "$root/.ready" ]; then
    say "making a root of $release in $root"
    rm -rf "$root"
    mkdir -p "$roots"
    debootstrap --variant=minbase --include=python3-venv,python3-dev,gcc,libc6-dev,ca-certificates "$release" "$root" >"$root.log" 2>&1 ||
        stop "debootstrap failed; see $root.log"
    touch "$root/.ready"
fi

# The network and pip's settings of this machine, for the time of the build; the packages contain none of it.
cp /etc/resolv.conf "$root/etc/resolv.conf"
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do if [ -e $file ]; then cp $file "$root$file"; fi; done
rm -rf "$root/usr/src/headway" "$root/stage" "$root/opt/headway" "$root/opt/sbom" "$root/tmp/share"
mkdir -p "$root/usr/src/headway" "$root/stage"
git ls-files -z | tar --null --files-from=- --create --owner=0 --group=0 | tar --extract --directory "$root/usr/src/headway"
epoch=$(git log -1 --format=%ct)

say "building in the root of $release"
# shellcheck disable=SC2016
unshare --mount --pid --fork --kill-child --propagation private sh -c '
    mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$root" \
    /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 SOURCE_DATE_EPOCH="$epoch" \
    ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} ${https_proxy:+https_proxy="$https_proxy"} \
    sh /usr/src/headway/systemd/packages/inside.sh

STAGE=$root/stage
PYTHON=$(cat "$STAGE/python")
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
number=$(sed -n 's/^VERSION_ID="\(.*\)"/\1/p' "$root/etc/os-release")
ARCH=$(chroot "$root" dpkg --print-architecture)
SOURCE_DATE_EPOCH=$epoch
export STAGE PYTHON VERSION ARCH SOURCE_DATE_EPOCH
configs=$(mktemp -d)
trap 'rm -rf "$configs"' EXIT
awk -v folder="$configs" '/^---$/ { number++; next } { print > (folder "/" number + 1 ".yaml") }' systemd/packages/packages.yaml
for config in "$configs"/*.yaml; do
    RELEASE=1~deb${number:-$release} "$nfpm" package --config "$config" --packager deb --target "$out" >/dev/null
    RELEASE=1 "$nfpm" package --config "$config" --packager rpm --target "$out" >/dev/null
done
for package in headway headway-agent; do cp "$STAGE/$package/doc/$package.cdx.json" "$out/"; done
find "$out" -maxdepth 1 \( -name 'headway*.deb' -o -name 'headway*.rpm' -o -name 'headway*.cdx.json' \) -newer "$STAGE/python" | sort
