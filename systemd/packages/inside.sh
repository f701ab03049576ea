#!/bin/sh
# Runs inside the root of a release, started by build.sh: makes the two environments in /opt/headway, one after the other, and lays
# their files out in /stage. Nothing outside the root is read, so that no path of the building machine can be in the result.
set -eu
cd /usr/src/headway
# For the packages that the build itself needs, too.
export PIP_CONSTRAINT=/usr/src/headway/constraints.txt PIP_BUILD_CONSTRAINT=/usr/src/headway/constraints.txt
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export SOURCE_DATE_EPOCH
python=$(basename "$(readlink -f /usr/bin/python3)")

# environment PACKAGE REQUIREMENTS...: a virtual environment at its final place, then moved to the stage.
environment() {
    package=$1
    shift
    rm -rf /opt/headway
    "/usr/bin/$python" -m venv /opt/headway
    /opt/headway/bin/pip install --quiet --no-compile "$@"
    # Where pip found the source: a path of this root.
    find /opt/headway -name direct_url.json -delete
    find /opt/headway -name RECORD -exec sed -i '/direct_url.json/d' {} +
    find /opt/headway -name __pycache__ -prune -exec rm -rf {} +
    # Hashes instead of times: packages do not keep times to the nanosecond, and a rebuild gives the same files.
    "/opt/headway/bin/python" -m compileall -q --invalidation-mode checked-hash "/opt/headway/lib/$python"
    rm -f /opt/headway/bin/activate* /opt/headway/bin/Activate*
    mkdir -p "/stage/$package/opt"
}

# sbom PACKAGE: what the environment consists of, as CycloneDX.
sbom() {
    mkdir -p "/stage/$1/doc"
    /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
        --pyproject pyproject.toml --output-file "/stage/$1/doc/$1.cdx.json" /opt/headway/bin/python
}

# documents PACKAGE
documents() {
    cp LICENSE "/stage/$1/doc/copyright"
    cp CHANGELOG.md "/stage/$1/doc/"
}

"/usr/bin/$python" -m venv /opt/sbom
/opt/sbom/bin/pip install --quiet cyclonedx-bom

environment headway '.[controller,agent,policy,top,web]' ./headway_client
sbom headway
documents headway
/opt/headway/bin/python -m policies.serving.manual --out /tmp/share >/dev/null
stage=/stage/headway
for program in headway headway-agent headway-controller headway-policy headway-setup headway-web; do
    for file in "man/man1/$program.1" "man/man8/$program.8" "bash-completion/completions/$program" \
        "zsh/vendor-completions/_$program" "fish/vendor_completions.d/$program.fish"; do
        for package in headway $([ "$program" = headway-agent ] && echo headway-agent); do
            if [ -e "/tmp/share/$file" ]; then install -D -m 644 -t "/stage/$package/share/$(dirname "$file")" "/tmp/share/$file"; fi
        done
    done
done
find /stage/*/share/man -type f -exec gzip -9n {} +
install -D -m 644 -t $stage/etc/headway slurm/plugin/example/controller.toml slurm/plugin/example/policy.env
install -D -m 644 -t $stage/units systemd/*.service systemd/*.timer
install -D -m 644 -t $stage/sysusers.d systemd/sysusers.d/headway.conf
install -D -m 644 -t $stage/tmpfiles.d systemd/tmpfiles.d/headway.conf
mv /opt/headway $stage/opt/headway

environment headway-agent '.[agent]'
# Only what runs on a compute node; the other programs need more packages than this environment has.
/opt/headway/bin/pip uninstall --quiet --yes pip
sbom headway-agent
documents headway-agent
find /opt/headway/bin -type f ! -name headway-agent ! -name headway-setup -delete
stage=/stage/headway-agent
install -D -m 644 -t $stage/etc/headway slurm/plugin/example/agent.toml
install -D -m 644 -t $stage/units systemd/headway-agent.service
mv /opt/headway $stage/opt/headway
echo "$python" >/stage/python
